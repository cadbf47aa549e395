"""Keeps the entries of a catalog as the delivered tables are. No failure of a catalog stops a delivery."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from zync.config.catalog import Catalog
from zync.config.model import Config
from zync.deliver.catalog.entries import CatalogClient, CatalogError, Entry, NameTakenError, View
from zync.deliver.catalog.glue import GlueCatalog
from zync.deliver.catalog.hive import HiveCatalog
from zync.deliver.catalog.iceberg import require_iceberg, write_metadata

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 60.0
"""How long after a failure the catalog is asked again; so long, too, an entry is taken to be as it was registered."""


class Registration:
    """Keeps the entries of a catalog as the newest snapshot says.

    A catalog that fails, or is away, stops no delivery: what could not be registered is tried again after a minute.

    Attributes:
        settings: The config's catalog.
        error: Why the catalog is not as the newest snapshot says; None if it is.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        settings: Catalog,
        client: CatalogClient | None,
        locations: Mapping[str, str],
        iceberg: frozenset[str] = frozenset(),
    ) -> None:
        """Prepares what is registered, which asks no catalog yet.

        Args:
            session: Returns the session of the delivery.
            settings: The config's catalog.
            client: The catalog; None if there is none.
            locations: The locations of the tables by output topic.
            iceberg: The output topics whose tables have metadata of Iceberg.
        """
        self.settings = settings
        self.error: CatalogError | None = None
        self._session, self._client, self._locations, self._iceberg = session, client, locations, iceberg
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._registered: dict[str, Entry] = {}
        self._shown: dict[str, int] = {}
        self._versions: Mapping[str, int] = {}
        self._due = float("-inf")

    def update(self, versions: Mapping[str, int]) -> None:
        """Makes the catalog as a snapshot says, unless it is, or failed within the last minute.

        Args:
            versions: The snapshot's versions by output topic; none before the first.
        """
        is_due = time.monotonic() >= self._due
        if not versions or (not is_due and (self.error or versions == self._versions)):
            return
        if is_due:
            self._registered.clear()  # others may have changed the catalog
        before, self.error = self.error, None
        try:
            self.register(versions)
        except CatalogError as error:
            self.error = error
            log.warning("%s; the tables have all rows, and the catalog is tried again in a minute", error)
        else:
            if before:
                log.info("the catalog has all tables again")
            self._versions = dict(versions)
        if is_due or self.error:
            self._due = time.monotonic() + _AGAIN_SECONDS

    def register(self, versions: Mapping[str, int]) -> None:
        """Makes the catalog have the tables of a snapshot, and views of their versions if the config asks for them.

        First it writes the metadata of Iceberg. A table that Iceberg cannot show, or a name that is somebody else's,
        keeps no other table from being shown or registered.

        Args:
            versions: The snapshot's versions by output topic.

        Raises:
            CatalogError: The catalog fails, or a name is somebody else's.
        """
        errors: list[CatalogError] = []
        for topic in sorted(versions.keys() & self._iceberg):
            try:
                if self._shown.get(topic) != versions[topic]:
                    write_metadata(self._locations[topic], versions[topic])
                    self._shown[topic] = versions[topic]
            except CatalogError as error:
                errors.append(error)
        if self._client:
            try:
                self._register_in(self._client, versions)
            except CatalogError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _register_in(self, client: CatalogClient, versions: Mapping[str, int]) -> None:
        """Registers the tables and views in a catalog. Raises CatalogError."""
        error: NameTakenError | None = None
        views = []
        for topic in sorted(versions.keys() & self._locations.keys()):
            entry = self._entry(topic, versions[topic])
            try:
                if self._registered.get(topic) != entry:
                    client.register(entry)
                    self._registered[topic] = entry
            except NameTakenError as taken:
                error = error or taken
            else:
                views.append(View(topic, self.settings.view_name(topic), entry.name, versions[topic]))
        if self.settings.views:
            client.replace_views(views)
        if error:
            raise error

    def _entry(self, topic: str, version: int) -> Entry:
        """Returns the entry of a table, whose columns are read again if it has another version."""
        known, location = self._entries.get(topic), self._locations[topic]
        if known is None or known[0] != version:
            columns = self._session().read.format("delta").load(location).schema
            known = self._entries[topic] = version, Entry(topic, self.settings.table_name(topic), location, columns)
        return known[1]


@contextmanager
def registered(
    session: Callable[[], SparkSession], config: Config, folder: str, locations: Mapping[str, str], *, at_end: bool
) -> Iterator[Callable[[Mapping[str, int]], None]]:
    """Keeps the config's catalog, and metadata of Iceberg, as the tables are, within the context.

    Args:
        session: Returns the session of the delivery.
        config: The config.
        folder: The folder of the tables.
        locations: The locations of the tables by output topic.
        at_end: Whether the catalog is told at the context's end only, which fails if that does.

    Yields:
        A function that is told the versions of the newest snapshot, as often as one likes.

    Raises:
        UsageError: A package that the catalog needs is not installed, or it needs a region.
        CatalogError: At the end, the catalog could not be told.
    """
    settings, client = config.deliver.catalog, None
    if settings:
        lake = folder.rpartition("/")[0]
        client = (
            GlueCatalog(settings) if settings.type == "glue" else HiveCatalog(session, settings, config.spark, lake)
        )
    iceberg = frozenset(topic for topic in locations if config.deliver.table(topic).iceberg)
    if iceberg:
        require_iceberg()
    if not client and not iceberg:
        yield lambda _: None
        return
    registration, newest = (
        Registration(session, settings or Catalog("hive"), client, locations, iceberg),
        dict[str, int](),
    )

    def tell(versions: Mapping[str, int]) -> None:
        newest.update(versions)
        if not at_end:
            registration.update(versions)

    yield tell
    if at_end and newest:
        registration.register(newest)
