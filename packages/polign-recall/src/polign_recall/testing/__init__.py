"""Tools for tests: `polign_recall.testing.conformance` checks a store of your own against the contract."""
