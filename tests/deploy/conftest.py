"""Helm, for the tests of the chart."""

import pytest

from tests.deploy import helm
from tests.golang import NotBuiltError


@pytest.fixture(scope="session")
def _helm() -> None:
    """Has helm built, where it is not there; skips the tests where it cannot be had."""
    try:
        helm.program()
    except NotBuiltError as error:
        pytest.skip(str(error))
