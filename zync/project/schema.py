"""The JSON Schema of `zync.yaml`, for editors, built from the dataclasses of `zync.config.model`.

It accepts what `zync.project.yaml_reader` accepts, and has those checks of `zync.project.checks` that look at a single
value or a single mapping. Only `zync check` tests whether files exist and whether different sections fit together. The
schema is stricter than the reader in a single case: it refuses null as text, which the reader takes as "null".
"""

import inspect
import json
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zync.config.catalog import PATTERN, Catalog
from zync.config.model import (
    KAFKAS_OWN,
    UNAVAILABLE_VALUE,
    Config,
    DebeziumConnector,
    Deliver,
    DeliveredTable,
    DeliveredTopic,
    KafkaDelivery,
    Limits,
    Lookup,
    OutputRule,
    RegistryAccess,
    Transactions,
)
from zync.config.storage import Storage
from zync.config.table_properties import BOOLEAN, COUNT, DELTA_PROPERTIES, OWN_PROPERTY, TEXT
from zync.config.units import duration_text

FILE_NAME = "zync.schema.json"
"""The file that `zync init` writes beside `zync.yaml`, whose first line names it for editors."""

_Schema = dict[str, Any]

_REFERENCE = r"\$\{[^}]+\}"
"""`${NAME}` or `${file:PATH}`, which any value may contain; the schema cannot check what the reader puts in there."""
_TEXT: _Schema = {"type": ["string", "number", "boolean"]}
_NULL: _Schema = {"type": "null"}


def _pattern(pattern: str) -> _Schema:
    """Returns the schema of texts that match `pattern` as a whole or contain a reference like `${NAME}`."""
    return {"pattern": rf"^(?:{pattern})$|{_REFERENCE}"}


_WHOLE_NUMBER = r"\s*[+-]?[0-9]+(?:_[0-9]+)*\s*"
_SHARE = r"\s*0*(?:100(?:\.0*)?|[0-9]{1,2}(?:\.[0-9]*)?)\s*%"
_SCALARS: dict[Any, _Schema] = {
    str: _TEXT,
    Path: _TEXT,
    bool: {"type": ["boolean", "string"], **_pattern("true|false")},
    int: {"type": ["integer", "string"], **_pattern(_WHOLE_NUMBER)},
    float: {"type": ["integer", "string"], **_pattern(f"{_WHOLE_NUMBER}|{_SHARE}")},
    timedelta: {"type": "string", **_pattern(r"\s*[0-9]+(?:\.[0-9]+)?\s*(?:ms|s|m|h|d|w)\s*")},
}
"""The schema of each type of a single value."""

_KAFKA_TOPIC: _Schema = {
    **_pattern(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}"),
    "not": {"enum": sorted(KAFKAS_OWN)},
}


def _exactly_one(*keys: str) -> _Schema:
    return {"oneOf": [{"required": [key], "properties": {key: {"not": _NULL}}} for key in keys]}


_HAS_ITEMS: _Schema = {"type": "array", "minItems": 1}
_HAS_ID: _Schema = {"required": ["id"], "properties": {"id": {"minLength": 1}}}
_HAS_PRESET: _Schema = {"required": ["preset"], "properties": {"preset": {"not": _NULL}}}
_END_TOPIC: _Schema = {"type": "string", **_pattern(r".*\.transaction")}
_HAS_PREFIX: _Schema = {"required": ["prefix"], "properties": {"prefix": {"not": _NULL}}}
# A topic of BEGIN and END with another name than <prefix>.transaction needs either the prefix or the tables.
_CONNECTOR: _Schema = {
    "required": ["topic"],
    "properties": {"topic": {"minLength": 1, "not": _NULL}},
    "anyOf": [
        {"properties": {"topic": _END_TOPIC}},
        _HAS_PREFIX,
        {"required": ["tables"], "properties": {"tables": _HAS_ITEMS}},
    ],
    "dependentSchemas": {"delimiter": _HAS_PREFIX},
}
_CONNECTOR_LIST: _Schema = {
    "required": ["connectors"],
    "properties": {
        "connectors": _HAS_ITEMS,
        **dict.fromkeys(("topic", "prefix", "delimiter", "tables"), False),
    },
}
_NO_ITEMS: _Schema = {"maxItems": 0}
_NO_TEXT: _Schema = {"enum": [""]}
_QUALIFIED: _Schema = {
    "items": {
        "anyOf": [
            {"type": "string", **_pattern(r".*[^.]\.+[^.].*")},
            {"type": "number", "not": {"type": "integer"}},
        ]
    }
}

_NAME: _Schema = {"type": ["string", "boolean", "integer"], "minimum": 0}
_METASTORE = r"\s*thrift://[^\s/@,]+:[0-9]+/?\s*"

_PROPERTY_KINDS: dict[str, _Schema] = {
    BOOLEAN: {"type": ["boolean", "string"]},
    COUNT: {"type": ["integer", "string"], "minimum": 1, "maximum": 999_999_999},
    TEXT: _TEXT,
}
_TABLE_PROPERTIES: _Schema = {
    "properties": {
        name: {**_PROPERTY_KINDS.get(pattern, {"type": "string"}), **_pattern(pattern)}
        for name, pattern in DELTA_PROPERTIES.items()
    },
    "patternProperties": {f"^(?:{OWN_PROPERTY})$": _TEXT},
    "additionalProperties": False,
}

FIELD_CHECKS: dict[tuple[type, str], _Schema] = {
    (Catalog, "endpoint"): {"type": "string", **_pattern("(?:https?://[^@]*)?")},
    (Catalog, "uri"): {"type": "string", **_pattern(rf"(?:{_METASTORE}(?:,{_METASTORE})*)?")},
    (Catalog, "view_database"): {**_NAME, **_pattern(f"(?:{PATTERN})?")},
    **{(Catalog, name): {**_NAME, **_pattern(PATTERN)} for name in ("database", "table", "view")},
    (DebeziumConnector, "prefix"): {"minLength": 1},
    (Deliver, "table_properties"): _TABLE_PROPERTIES,
    (DeliveredTable, "properties"): _TABLE_PROPERTIES,
    (DeliveredTopic, "as_"): _KAFKA_TOPIC,
    (DeliveredTopic, "partitions"): {"minimum": 1},
    (DeliveredTopic, "replication"): {"minimum": 1},
    (KafkaDelivery, "progress_topic"): _KAFKA_TOPIC,
    (KafkaDelivery, "transaction_topic"): _KAFKA_TOPIC,
    (Limits, "max_quarantined"): {"minimum": 0},
    (Limits, "records_per_sync"): {"minimum": 1},
    (RegistryAccess, "url"): {"type": "string", **_pattern("https?://[^@]*")},
    (RegistryAccess, "timeout"): {"not": {"pattern": r"^\s*[0.]+\s*[a-z]"}},
    (Storage, "endpoint"): {"type": "string", **_pattern("https?://[^@]*")},
    **{
        (Storage, field.name): {"minLength": 1}
        for field in fields(Storage)
        if field.name not in ("endpoint", "path_style", "options")
    },
    (Transactions, "prefix"): {"minLength": 1},
    (Transactions, "remember"): {"minimum": 0},
    (Transactions, "uncounted"): _QUALIFIED,
    (Transactions, "unavailable_value"): {"minLength": 1},
}
"""The checks of `load` on a single value, beyond its type."""

RECORD_CHECKS: dict[type, _Schema] = {
    Catalog: {
        "if": {"required": ["type"], "properties": {"type": {"const": "hive"}}},
        "then": {"properties": dict.fromkeys(("region", "endpoint"), _NO_TEXT)},
        "else": {"properties": {"uri": _NO_TEXT, "views": {"not": {"enum": [True, "true"]}}}},
    },
    # A topic that the Debezium preset covers needs no id. Its name decides that, so the schema cannot check it.
    Config: {
        "if": {"required": ["transactions"], "properties": {"transactions": _HAS_PRESET}},
        "else": {"properties": {"topics": {"additionalProperties": _HAS_ID}, "debezium": {"maxProperties": 0}}},
    },
    DebeziumConnector: {"allOf": [_CONNECTOR]},
    DeliveredTable: {
        "not": {
            "required": ["partition_by", "cluster_by"],
            "properties": {"partition_by": _HAS_ITEMS, "cluster_by": _HAS_ITEMS},
        }
    },
    Lookup: _exactly_one("csv", "json", "delta"),
    OutputRule: _exactly_one("sql", "python"),
    Storage: {
        "dependentRequired": {
            "access_key_id": ["secret_access_key"],
            "secret_access_key": ["access_key_id"],
            "session_token": ["access_key_id"],
            "tenant_id": ["client_id"],
            "client_secret": ["client_id", "tenant_id"],
        },
        "dependentSchemas": {
            "path_style": {"if": {"properties": {"path_style": {"not": _NULL}}}, "then": {"required": ["endpoint"]}}
        },
    },
    Transactions: {
        "dependentSchemas": {
            "incomplete": {
                "if": {"properties": {"incomplete": {"not": _NULL}}},
                "then": {"required": ["order"], "properties": {"order": _pattern("commit")}},
            }
        },
        "if": _HAS_PRESET,
        "then": {
            "properties": {"done": False},
            "if": {"required": ["connectors"], "properties": {"connectors": _HAS_ITEMS}},
            "then": _CONNECTOR_LIST,
            "else": _CONNECTOR,
        },
        "else": {
            "properties": {
                "topic": {"enum": [None, ""]},
                "prefix": _NULL,
                "delimiter": _pattern(r"\."),
                **dict.fromkeys(("tables", "connectors", "uncounted"), _NO_ITEMS),
                "unavailable_value": _pattern(UNAVAILABLE_VALUE),
                "order": _pattern("completion"),
                "incomplete": _NULL,
            }
        },
    },
}
"""The checks of `load` on the keys of a mapping together."""


def config_schema() -> _Schema:
    """Returns the JSON Schema (draft 2020-12) of `zync.yaml`."""
    definitions: dict[str, _Schema] = {}
    root = _record(Config, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "zync.yaml",
        **root,
        "$defs": definitions,
    }


def config_schema_text() -> str:
    """Returns the schema as the text of its file."""
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"


def documentation(kind: Any) -> tuple[str, dict[str, str]]:
    """Returns the first paragraph of a dataclass's docstring, and each field's text in its section `Attributes:`."""
    text, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
    section = re.split(r"^(?=\S)", listed, maxsplit=1, flags=re.MULTILINE)[0]
    items = re.split(r"^ {4}(\w+)(?: \([^)]*\))?:(?= |$)", section, flags=re.MULTILINE)
    meanings = {name: " ".join(meaning.split()) for name, meaning in zip(items[1::2], items[2::2], strict=True)}
    return " ".join(text.partition("\n\n")[0].split()), meanings


def _record(kind: Any, definitions: dict[str, _Schema]) -> _Schema:
    """Returns the schema of the dataclass `kind`, and adds those of the dataclasses in its fields to `definitions`."""
    hints = get_type_hints(kind)
    text, meanings = documentation(kind)
    properties: dict[str, _Schema] = {}
    required, further = list[str](), list[str]()
    for field in fields(kind):
        further += field.metadata.get("further", ())
        key = field.metadata.get("key", field.name)
        if key is None:
            continue
        meaning = {"description": meanings[field.name]} if field.name in meanings else {}
        value = _value(hints[field.name], definitions)
        described = {**meaning, **value, **FIELD_CHECKS.get((kind, field.name), {}), **_default(field)}
        outer, _, inner = key.partition(".")
        if inner:  # an item of a mapping of names
            items = properties[outer]["additionalProperties"]
            kinds = [kind for kind in value["anyOf"] if kind != _NULL]
            properties[outer]["properties"] = {inner: {**meaning, "anyOf": [*kinds, items]}}
            continue
        properties[key] = described
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(key)
    return {
        "description": text,
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **({"patternProperties": {f"^(?:{'|'.join(map(re.escape, further))})$": _TEXT}} if further else {}),
        "additionalProperties": False,
        **RECORD_CHECKS.get(kind, {}),
    }


def _value(kind: Any, definitions: dict[str, _Schema]) -> _Schema:
    """Returns the schema of a value of the type `kind`."""
    if isinstance(kind, type) and is_dataclass(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # orders it before the definitions that it refers to
            definitions[kind.__name__] = _record(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        words = [word for arg in args if get_origin(arg) is Literal for word in get_args(arg)]
        value = _value(next(arg for arg in args if arg is not NoneType), definitions)
        value = {"anyOf": [{"enum": words}, value]} if words else value
        return _or_null(value) if NoneType in args else value
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(args[1], definitions)}
    if origin is tuple:
        return {"type": "array", "items": _value(args[0], definitions)}
    if origin is Literal:
        return {"anyOf": [{"enum": list(args)}, {"type": "string", "pattern": _REFERENCE}]}
    return _SCALARS[kind]


def _or_null(value: _Schema) -> _Schema:
    if "type" in value:
        types = value["type"] if isinstance(value["type"], list) else [value["type"]]
        return {**value, "type": [*types, "null"]}
    return {"anyOf": [*value.get("anyOf", [value]), _NULL]}


def _default(field: "Field[Any]") -> _Schema:
    """Returns the field's default as a schema keyword; empty for defaults that are empty or no single value."""
    if isinstance(field.default, timedelta):
        return {"default": duration_text(field.default)}
    return {"default": field.default} if isinstance(field.default, str | int) and field.default != "" else {}
