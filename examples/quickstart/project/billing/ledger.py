"""Every charge that was made, in cents."""

ENTRIES: list[tuple[str, int]] = []


def record(customer: str, cents: int) -> int:
    """Adds a charge and returns its amount in cents."""
    ENTRIES.append((customer, cents))
    return cents
