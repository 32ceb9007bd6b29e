"""Sums for the monthly report."""

from billing.ledger import ENTRIES


def charged(customer: str) -> int:
    """All that a customer was charged, in cents."""
    return sum(cents for name, cents in ENTRIES if name == customer)
