"""Settings that all of the core's tests share."""

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("recall", deadline=None)
settings.load_profile("recall")
