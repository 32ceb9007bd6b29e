"""Shipping, by weight."""

from billing.legacy import charge


BASE = 4.5
PER_KILO = 0.8


def ship(customer: str, kilos: float) -> int:
    """A base price and a price for each kilo."""
    return charge(customer, BASE + PER_KILO * kilos)
