"""What customers buy."""
