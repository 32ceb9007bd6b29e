"""The old way to charge a customer."""

import warnings

from billing.ledger import record


def charge(customer: str, amount: float, cents: bool = False) -> int:
    """Charges `amount` dollars, or cents when `cents` is true. Deprecated: use billing.payments.pay."""
    warnings.warn("billing.legacy.charge is deprecated", DeprecationWarning, stacklevel=2)
    return record(customer, int(amount) if cents else round(amount * 100))
