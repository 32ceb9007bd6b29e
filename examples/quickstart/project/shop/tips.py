"""Tips, added at the terminal."""

from billing.legacy import charge


def tip(customer: str, bill: float, percent: int) -> int:
    """A share of the bill."""
    return charge(customer, bill * percent / 100)
