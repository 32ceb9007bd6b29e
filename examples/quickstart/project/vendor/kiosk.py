"""A supplier's code. It uses the old interface, and it is not ours to change."""

from billing.legacy import charge


def swipe(customer: str, amount: float) -> int:
    return charge(customer, amount)
