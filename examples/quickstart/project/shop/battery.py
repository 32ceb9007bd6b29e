"""Charging stations. To charge a battery costs nothing, and has nothing to do with billing.legacy."""


def charge(battery: int, amount: int) -> int:
    """Adds to a battery's level, which ends at 100."""
    return min(100, battery + amount)


def top_up(battery: int) -> int:
    return charge(battery, 100)
