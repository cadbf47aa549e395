"""What a catalog refuses of one table keeps no other from being registered or shown."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures, write_deltalake

from zync.config.catalog import Catalog
from zync.deliver.catalog.entries import CatalogError
from zync.deliver.catalog.registration import Registration


class Noted(Registration):
    """A registration in a catalog that takes every table."""

    names: tuple[str, ...] = ()

    def _register_in(self, client: Any, versions: Any) -> None:  # noqa: ARG002
        self.names = tuple(sorted(versions))


def test_a_table_that_iceberg_cannot_show_stops_neither_the_others_nor_the_catalog(tmp_path: Path) -> None:
    locations = {name: str(tmp_path / "tables" / name) for name in ("a", "b")}
    for location in locations.values():
        write_deltalake(location, pa.table({"id": [1]}))
    DeltaTable(locations["a"]).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    registration = Noted(None, Catalog("hive"), object(), locations, frozenset(locations))  # type: ignore[arg-type]
    with pytest.raises(CatalogError, match=r"/tables/a cannot be written: Iceberg has no deletionVectors"):
        registration.register({"a": 1, "b": 0})
    assert (tmp_path / "tables" / "_iceberg" / "b" / "metadata" / "version-hint.text").exists()
    assert registration.names == ("a", "b")
