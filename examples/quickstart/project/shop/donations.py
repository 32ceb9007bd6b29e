"""Donations at the till."""

from billing.legacy import charge


def donate(customer: str, amount: float) -> int:
    """A donation of any amount in dollars."""
    if amount <= 0:
        raise ValueError("a donation is more than nothing")
    return charge(customer, amount)
