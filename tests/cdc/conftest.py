"""The database of the tests: a real PostgreSQL."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zync.demo.postgres import Postgres


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A PostgreSQL in a folder of its own, whose name is short enough for a socket and which its user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="zync-postgres-"))
    folder.chmod(0o755)
    database = Postgres(folder)
    database.start()
    try:
        yield database
    finally:
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    with running_postgres() as database:
        yield database
