"""Helm, for the tests of the chart."""

import pytest

from tests.deploy import helm


@pytest.fixture(scope="session")
def _helm() -> None:
    """Skips the tests where there is no helm: a test has no time to build it."""
    if helm.program() is None:
        pytest.skip("helm is not here, and `make helm` did not build it")
