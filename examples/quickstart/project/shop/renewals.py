"""Yearly renewals of memberships."""

from billing.legacy import charge


PRICE = 89.9


def renew(customer: str, years: int = 1) -> list[int]:
    """One charge for each year, as the accounts want it."""
    return [charge(customer, PRICE) for _ in range(years)]
