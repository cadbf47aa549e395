"""Lakes on disks of their own, which root may mount."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kafka.conftest import Lake
from tests.kafka.harms import MB, disk


@pytest.fixture
def small(tmp_path: Path, broker: str) -> Iterator[Lake]:
    """A lake on a small disk of its own."""
    yield from on_a_disk(tmp_path, broker, 100 * MB)


@pytest.fixture
def roomy(tmp_path: Path, broker: str) -> Iterator[Lake]:
    """A lake on a disk of its own that has room for what `stall` sends in large messages."""
    yield from on_a_disk(tmp_path, broker, 800 * MB)


def on_a_disk(tmp_path: Path, broker: str, size: int) -> Iterator[Lake]:
    with ExitStack() as mounted:
        try:
            mounted.enter_context(disk(tmp_path / "lake", size))
        except OSError as error:
            pytest.skip(f"no disk can be mounted here: {error}")
        yield Lake(tmp_path, broker)
