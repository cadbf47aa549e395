"""The fence of a delivered table: a batch lands only on the version that it was planned from.

On a local disk an OS lock keeps a second delivery away. A store has no such lock: two deliveries may run, for a while,
of which one does not know the other. Delta lets both land if their rows do not conflict, as two appends of the same
rows. So Spark's log stores (FencedLogStore.java) refuse commits after those of another process.
"""

from collections.abc import Callable, Mapping

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from zync.deliver.tables.target import TableTarget
from zync.deliver.tables.tombstones import TOMBSTONES
from zync.errors import ConflictError
from zync.lake.delivered import delivered_sync
from zync.lake.paths import is_local
from zync.lake.table import ensure_table

_BASE = "zync.base."
"""The prefix of the session's settings that FencedLogStore.java reads; the location of a table follows."""


def check_planned(
    target: TableTarget, table: DeltaTable | None, staging_id: str, after: int, upto: int
) -> "dict[str, DeltaTable | None]":
    """Checks that the table and its tombstones are as the batch was planned; creates the tombstones if they lack.

    Args:
        target: The table's description.
        table: The table at its newest version; None if it does not exist.
        staging_id: The table id of staging.
        after: The last sync that the table had when the batch was planned.
        upto: The last sync of the batch.

    Returns:
        The tables by location, at the versions from which the batch's commits follow; None for one that does not exist.

    Raises:
        ConflictError: Another process delivered meanwhile.
    """
    tables = {target.location: table}
    _check_sync(target.location, table, staging_id, after)
    if target.deleted:
        tombstones = ensure_table(target.deleted, TOMBSTONES, "zync: what was deleted, and where in the source's order")
        _check_sync(target.deleted, tombstones, staging_id, upto)
        tables[target.deleted] = tombstones
    return tables


def _check_sync(location: str, table: DeltaTable | None, staging_id: str, upto: int) -> None:
    """Raises ConflictError if the table has a sync after `upto`."""
    sync = delivered_sync(table, staging_id)
    if sync > upto:
        msg = f"another process delivered sync {sync:,} to {location} meanwhile"
        raise ConflictError(msg)


class FencedSession:
    """The Spark session of a batch. Its commits fail after a commit of another process to one of the batch's tables.

    It is asked for when Spark is needed for the first time. On a local disk, where a lock keeps others away, there is
    nothing else to do.
    """

    def __init__(self, session: Callable[[], SparkSession], tables: "Mapping[str, DeltaTable | None]") -> None:
        """Prepares the fence.

        Args:
            session: Returns the session.
            tables: The tables by location, at the versions after which only this process may commit.
        """
        self._session = session
        self._spark: SparkSession | None = None
        self._versions = {location: table.version() if table else -1 for location, table in tables.items()}

    @property
    def spark(self) -> SparkSession:
        """The session."""
        if self._spark is None:
            self._spark = self._session()
            for location, version in self._versions.items():
                _set_base(self._spark, location, version)
        return self._spark

    def follow(self, location: str, version: int) -> None:
        """Lets Spark's commits to a table follow this version, which this process committed without Spark."""
        self._versions[location] = version
        if self._spark is not None:
            _set_base(self._spark, location, version)

    def __enter__(self) -> "FencedSession":
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            for location in filter(lambda location: not is_local(location), self._versions):
                self._spark.conf.unset(f"{_BASE}{location}")


def _set_base(spark: SparkSession, location: str, version: int) -> None:
    if not is_local(location):
        spark.conf.set(f"{_BASE}{location}", str(version))
