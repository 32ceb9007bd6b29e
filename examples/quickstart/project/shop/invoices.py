"""Invoices, kept in cents."""

from billing.legacy import charge


def settle(customer: str, lines: list[int]) -> int:
    """All lines of an invoice at once; each is in cents."""
    total = sum(lines)
    return charge(customer, total, cents=True)
