"""Helm and OpenTofu, for the tests of the chart and of the modules that install it."""

import pytest

from tests.deploy import helm, tofu


@pytest.fixture(scope="session")
def _helm() -> None:
    """Skips the tests where there is no helm: a test has no time to build it."""
    if helm.program() is None:
        pytest.skip("helm is not here, and `make helm` did not build it")


@pytest.fixture(scope="session")
def _tofu() -> None:
    """Skips the tests where there is neither OpenTofu nor Terraform."""
    if tofu.program() is None:
        pytest.skip("neither tofu nor terraform is here: `make test-terraform` builds the first")
