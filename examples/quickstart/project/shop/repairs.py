"""Repairs: parts in cents, labour in dollars."""

from billing.legacy import charge


def bill(customer: str, parts_cents: int, labour: float) -> tuple[int, int]:
    """Two charges, one for the parts and one for the labour."""
    parts = charge(customer, parts_cents, cents=True)
    work = charge(customer, labour)
    return parts, work
