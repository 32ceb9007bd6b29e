"""Code of other people, never edited here."""
