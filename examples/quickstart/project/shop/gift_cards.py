"""Gift cards, sold in whole dollars."""

from billing.legacy import charge


VALUES = (10, 25, 50)


def sell(customer: str, value: int) -> int:
    """A card of one of the fixed values."""
    if value not in VALUES:
        raise ValueError(f"gift cards are sold for {VALUES}")
    return charge(customer, value)
