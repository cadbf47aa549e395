"""Encodes the keys and values of messages: staging's JSON unchanged, or bytes by a schema of the schema registry."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from zync.config.model import PARTS, Config, DeliveredFormat, Part
from zync.errors import UsageError, ZyncError
from zync.formats.encode.avro import avro
from zync.formats.encode.columns import RowEncoder
from zync.formats.encode.json_schema import json_schema
from zync.formats.encode.values import Kind
from zync.formats.extras import require_protobuf
from zync.formats.registry import Schema, registry
from zync.staging.outputs import columns_by_sync


@dataclass(frozen=True, eq=False)
class _Registered:
    """The encoder of a topic's keys or values, whose schema is registered.

    Attributes:
        rows: Encodes the rows.
        header: What is before each: a zero and the schema's id in the registry.
    """

    rows: RowEncoder
    header: bytes


class Encoder:
    """Encodes the output rows of a staging by the columns that each sync stored in its cursor row.

    Call `load_columns` before `encoded`, once for each table of rows from staging.
    """

    def __init__(self, config: Config, table: DeltaTable) -> None:
        self._config, self._table = config, table
        self._columns: dict[int, dict[str, dict[str, Any]]] = {}
        self._encoders: dict[tuple[str, str, str], _Registered] = {}

    def load_columns(self, rows: pa.Table) -> None:
        """Reads the columns of the outputs in the syncs of `rows`, unless all topics are delivered as JSON."""
        topics = rows["topic"].unique().to_pylist()
        if all(self._config.delivered_format(topic, part) == "json" for topic in topics for part in PARTS):
            return
        first, last = pc.min(rows["sync"]).as_py(), pc.max(rows["sync"]).as_py()
        self._columns = columns_by_sync(self._table, first, last)

    def encoded(self, rows: pa.Table, part: Part) -> list[str | bytes | None]:
        """Encodes the keys or the values of output rows (sync, topic, offset, key, value); null stays null.

        Raises:
            UsageError: the format has no type for a column, or the registry refuses the schema.
            ZyncError: the registry does not answer, or a row does not fit the columns of its sync.
        """
        texts: list[str | bytes | None] = rows[part].to_pylist()
        formats = {topic: self._config.delivered_format(topic, part) for topic in rows["topic"].unique().to_pylist()}
        if set(formats.values()) <= {"json"}:
            return texts
        encoded = np.array(texts, object)
        for encoder, indices in self._indices(rows, part).items():
            row_texts = encoded[indices].tolist()
            encoded_rows = encoder.rows.encoded(row_texts, encoder.header)
            encoded[indices] = encoded_rows or [
                self._encoded(encoder, text, rows, index, part)
                for text, index in zip(row_texts, indices.tolist(), strict=True)
            ]
        return encoded.tolist()  # type: ignore[no-any-return]

    def _indices(self, rows: pa.Table, part: Part) -> "dict[_Registered, np.ndarray[Any, np.dtype[np.int64]]]":
        """Returns by encoder the indices of the rows that it encodes: those with a key, or value, in its topics."""
        numbered = rows.select(["topic", "sync"]).append_column("index", pa.array(np.arange(rows.num_rows)))
        groups = numbered.filter(rows[part].is_valid()).group_by(["topic", "sync"]).aggregate([("index", "list")])
        indices: dict[_Registered, list[Any]] = {}
        for group in range(groups.num_rows):
            topic, sync = groups["topic"][group].as_py(), groups["sync"][group].as_py()
            if self._config.delivered_format(topic, part) == "json":
                continue
            if encoder := self._encoder(topic, part, sync):
                indices.setdefault(encoder, []).append(groups["index_list"][group].values.to_numpy())
        return {encoder: np.concatenate(of_groups) for encoder, of_groups in indices.items()}

    def _encoded(self, encoder: "_Registered", text: str, rows: pa.Table, index: int, part: Part) -> bytes:
        """Encodes the row at an index; ZyncError says why it cannot be, and which it is."""
        try:
            return encoder.header + encoder.rows.one(text)
        except (ValueError, ArithmeticError, TypeError, LookupError) as error:
            topic, sync, offset = (rows[name][index].as_py() for name in ("topic", "sync", "offset"))
            format_ = self._config.delivered_format(topic, part)
            msg = f"the {part} of output {topic}, offset {offset} (sync {sync}), cannot be {format_}: {error}"
            raise ZyncError(msg) from error

    def _encoder(self, topic: str, part: Part, sync: int) -> _Registered | None:
        """Returns the encoder of a topic's keys or values in a sync; None if the topic's rules have no key."""
        struct = self._columns.get(sync, {}).get(topic, {}).get(part)
        if struct is None:
            msg = (
                f"sync {sync} has not put on record which columns output {topic} has: its rules do not agree on types "
                "or the key (make them, and replay), or an older zync made it; or deliver it as json"
            )
            raise UsageError(msg)
        if part == "key" and not struct["fields"]:
            return None
        cache_key = (topic, part, str(struct))
        if cache_key not in self._encoders:
            self._encoders[cache_key] = self._register(topic, part, struct)
        return self._encoders[cache_key]

    def _register(self, topic: str, part: Part, struct: Kind) -> _Registered:
        """Registers the schema of a topic's keys or values; returns their encoder."""
        config = self._config
        access = config.delivered_registry
        if access is None:
            msg = f"output {topic}: its format needs a schema registry: say registry.url in the config"
            raise UsageError(msg)
        target_topic, schema_registry = config.kafka_delivery.target(topic), registry(access)
        subject, format_ = f"{target_topic}-{part}", config.delivered_format(topic, part)
        earlier = (
            [schema for schema in schema_registry.versions(subject) if schema.kind == "PROTOBUF"]
            if format_ == "protobuf"
            else []
        )
        schema_type, schema_text, row_encoder = in_format(format_, struct, target_topic, part, earlier)
        schema_id = schema_registry.register(subject, schema_type, schema_text)
        return _Registered(row_encoder, b"\0" + schema_id.to_bytes(4, "big"))


def in_format(
    format_: DeliveredFormat, struct: Kind, topic: str, part: Part, earlier: Sequence[Schema] = ()
) -> tuple[str, str, RowEncoder]:
    """Makes the schema and the encoder of a topic's keys or values in a format that has schemas.

    Args:
        format_: avro, protobuf or json-schema.
        struct: The columns, as a Spark struct in JSON.
        topic: The Kafka topic.
        part: key or value.
        earlier: The registered versions of the schema, with which Protobuf field numbers must agree.

    Returns:
        The registry's name of the format, the text of the schema, and the encoder of staging's JSON.

    Raises:
        UsageError: the format has no type for a column.
    """
    name, context = full_name(topic, part), f"topic {topic}"
    if format_ == "avro":
        return "AVRO", *avro(struct, name, context)
    if format_ == "protobuf":
        require_protobuf(topic, part)
        from zync.formats.encode.protobuf import protobuf  # noqa: PLC0415 - an extra

        return "PROTOBUF", *protobuf(struct, name, context, earlier)

    return "JSON", *json_schema(struct, name, context)


def full_name(topic: str, part: Part) -> str:
    """Returns the full name of the record or message in a topic's schema: `shop.orders.Value` for `shop.orders`."""
    names = [re.sub(r"^(?=\d)|^$", "_", re.sub(r"\W", "_", name, flags=re.ASCII)) for name in topic.split(".")]
    return ".".join([*names, part.capitalize()])
