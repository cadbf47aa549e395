"""Errors by which Spark says that another process committed to a delivered table meanwhile."""

import pytest
from pyspark.errors import PySparkException

from zync.deliver.tables.apply import _is_conflict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected", True),
        ("[DELTA_METADATA_CHANGED] The metadata of the Delta table has been changed", True),
        ("java.io.IOException: ZYNC_CONCURRENT_WRITE: another process wrote 3.json", True),
        ("[CAST_INVALID_INPUT] The value '[DELTA_CONCURRENT_APPEND]' cannot be cast", False),
        ("[DELTA_TABLE_NOT_FOUND] Delta table `a` does not exist.", False),
    ],
)
def test_an_error_that_only_has_its_text_is_known_by_its_beginning(text: str, expected: bool) -> None:
    """As those are that an application gets which has imported `delta`: they keep no Java exception."""
    assert _is_conflict(PySparkException(text)) is expected
