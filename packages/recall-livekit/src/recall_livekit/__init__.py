"""LiveKit voice agents that go on with the call after a restart."""

__version__ = "0.1.0"
