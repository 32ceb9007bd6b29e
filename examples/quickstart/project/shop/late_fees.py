"""Fees for what came back late."""

from billing.legacy import charge


FEE_PER_DAY = 1.25
FEE_LIMIT_CENTS = 2000


def charge_late_fee(customer: str, days: int) -> int:
    """A fee for each day, up to a limit."""
    if days > 16:
        return charge(customer, FEE_LIMIT_CENTS, cents=True)
    return charge(customer, FEE_PER_DAY * days)
