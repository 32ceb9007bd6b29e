"""Takes money from customers."""
