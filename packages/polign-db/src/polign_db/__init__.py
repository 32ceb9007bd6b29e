"""The polign command: look at agents and their records in a store."""

__version__ = "0.1.0"
