"""Texts for the staff's manual."""

OLD_TILL = """
The old till calls charge(customer, amount) from billing.legacy.
Do not type `from billing.legacy import charge` anywhere new.
"""
