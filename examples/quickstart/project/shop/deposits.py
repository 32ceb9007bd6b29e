"""Deposits for rented tools."""

from billing.legacy import charge


DEPOSIT = 50.0


def take_deposit(customer: str, tools: int) -> int:
    """One deposit for each tool."""
    return charge(customer, DEPOSIT * tools)
