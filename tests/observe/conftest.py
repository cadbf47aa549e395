"""The staging of the tests of deliveries, for those of what they tell others."""

from tests.deliver.conftest import staging

__all__ = ["staging"]
