"""Monthly subscriptions."""

from billing.legacy import charge


PLANS = {"basic": 900, "plus": 1900}


def start_month(customer: str, plan: str) -> int:
    """The month's price of a plan, in cents."""
    price = PLANS[plan]
    return charge(customer, price, cents=True)
