"""Has few records processed as many are, so that a test of a large sync takes seconds."""

import pytest

from zync.spark import sizing
from zync.transactions import gather


def as_large(patch: pytest.MonkeyPatch) -> None:
    """Makes every sync a large one: several tasks, compiled code, and earlier records read by Spark."""
    patch.setattr(sizing, "SMALL", 0)
    patch.setattr(sizing, "TINY", 0)
    patch.setattr(gather, "RECENT", 0)
