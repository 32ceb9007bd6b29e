"""Parking, by the hour."""

from billing.legacy import charge


RATE_CENTS = 350


def leave(customer: str, hours: int) -> int:
    """The rate for each hour begun."""
    return charge(customer, RATE_CENTS * hours, cents=True)
