"""What messages' keys and values are: staging's JSON as it is, or bytes by a schema that is in a registry."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.config.model import PARTS, Config, DeliveredFormat, Part
from zync.errors import UsageError, ZyncError
from zync.formats.encode.avro import avro
from zync.formats.encode.json_schema import json_schema
from zync.formats.encode.values import Kind
from zync.formats.extras import require_protobuf
from zync.formats.registry import Schema, registry
from zync.staging.outputs import columns_by_sync

Encode = Callable[[str], bytes]


class Encoder:
    """Makes the messages of one staging. A row is of the columns that its sync had, as staging's cursor rows say.

    `look_up` comes before `encoded`, once for all the rows that are in memory together.
    """

    def __init__(self, config: Config, table: DeltaTable) -> None:
        self._config, self._table = config, table
        self._columns: dict[int, dict[str, dict[str, Any]]] = {}
        self._known: dict[tuple[str, str, str], Encode] = {}

    def look_up(self, rows: pa.Table) -> None:
        """Reads what the syncs of those rows have on record of their columns, where a format asks for that."""
        topics = rows["topic"].unique().to_pylist()
        if all(self._config.delivered_format(topic, part) == "json" for topic in topics for part in PARTS):
            return
        first, last = pc.min(rows["sync"]).as_py(), pc.max(rows["sync"]).as_py()
        self._columns = columns_by_sync(self._table, first, last)

    def encoded(self, rows: pa.Table, part: Part) -> list[str | bytes | None]:
        """The keys or values of output rows (sync, topic, offset, key, value) as they go out; null stays null.

        Of rows of which `look_up` has seen the syncs.

        UsageError where the format has no type for a column, or the registry does not take the schema; ZyncError where
        it does not answer, or a row is not what its columns say.
        """
        texts: list[str | bytes | None] = rows[part].to_pylist()
        kinds = {topic: self._config.delivered_format(topic, part) for topic in rows["topic"].unique().to_pylist()}
        if set(kinds.values()) <= {"json"}:
            return texts
        places = rows.group_by(["topic", "sync"]).aggregate([]).select(["topic", "sync"]).to_pylist()
        by_place = {
            (topic, sync): self._encode(topic, part, sync)
            for topic, sync in (one.values() for one in places)
            if kinds[topic] != "json"
        }
        found: list[str | bytes | None] = []
        columns = (rows[name].to_pylist() for name in ("topic", "sync", "offset"))
        for text, topic, sync, offset in zip(texts, *columns, strict=True):
            encode = by_place.get((topic, sync))
            try:
                found.append(text if text is None or encode is None else encode(str(text)))
            except (ValueError, ArithmeticError, TypeError, LookupError) as error:
                msg = f"the {part} of output {topic}, offset {offset} (sync {sync}), cannot be {kinds[topic]}: {error}"
                raise ZyncError(msg) from error
        return found

    def _encode(self, topic: str, part: Part, sync: int) -> Encode | None:
        """What makes the bytes of a topic's keys or values; None where rules have no key."""
        kind = self._columns.get(sync, {}).get(topic, {}).get(part)
        if kind is None:
            msg = (
                f"sync {sync} has not put on record which columns output {topic} has: its rules do not agree on types "
                "or the key (make them, and replay), or an older zync made it; or deliver it as json"
            )
            raise UsageError(msg)
        if part == "key" and not kind["fields"]:  # then there is none
            return None
        known = (topic, part, str(kind))
        if known not in self._known:
            self._known[known] = self._registered(topic, part, kind)
        return self._known[known]

    def _registered(self, topic: str, part: Part, kind: Kind) -> Encode:
        """What makes bytes by a schema, which is in the registry when this returns."""
        config = self._config
        access = config.delivered_registry
        if access is None:
            msg = f"output {topic}: its format needs a schema registry: say registry.url in the config"
            raise UsageError(msg)
        target, asked = config.kafka_delivery.target(topic), registry(access)
        subject, format_ = f"{target}-{part}", config.delivered_format(topic, part)
        earlier = [one for one in asked.versions(subject) if one.kind == "PROTOBUF"] if format_ == "protobuf" else []
        registered, text, encode = in_format(format_, kind, target, part, earlier)
        head = b"\0" + asked.register(subject, registered, text).to_bytes(4, "big")
        return lambda row: head + encode(row)


def in_format(
    format_: DeliveredFormat, kind: Kind, topic: str, part: Part, earlier: Sequence[Schema] = ()
) -> tuple[str, str, Encode]:
    """What registries call a format that has schemas; the schema of a topic's keys or values; what makes their bytes.

    `kind`: a struct. `earlier`: schemas that there were. UsageError where the format has nothing for a column.
    """
    name, within = full_name(topic, part), f"topic {topic}"
    if format_ == "avro":
        return "AVRO", *avro(kind, name, within)
    if format_ == "protobuf":
        require_protobuf(topic, part)
        from zync.formats.encode.protobuf import protobuf  # noqa: PLC0415 - an extra

        return "PROTOBUF", *protobuf(kind, name, within, earlier)

    return "JSON", *json_schema(kind, name, within)


def full_name(topic: str, part: Part) -> str:
    """What a record or message is called: `shop.orders.Value` in topic `shop.orders`."""
    parts = [re.sub(r"^(?=\d)|^$", "_", re.sub(r"\W", "_", one, flags=re.ASCII)) for one in topic.split(".")]
    return ".".join([*parts, part.capitalize()])
