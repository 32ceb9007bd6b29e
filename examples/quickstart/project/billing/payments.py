"""The new way to charge a customer: whole cents, nothing else."""

from billing.ledger import record


def to_cents(amount: float) -> int:
    """Dollars as whole cents."""
    return round(amount * 100)


def pay(customer: str, cents: int) -> int:
    """Charges whole cents."""
    if not isinstance(cents, int):
        raise TypeError("pay() takes whole cents")
    return record(customer, cents)
