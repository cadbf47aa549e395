"""The JSON Schema of `zync.yaml`, for editors: made from the dataclasses of `zync.config.model`.

It knows what `zync.project.yaml_reader` accepts, and of what `zync.project.load` checks that which one value or one
mapping shows. Whether files exist, and whether names in different places fit together, only `zync check` says. In one
thing it is stricter: null is no text, which the reader takes for the text "null".
"""

import inspect
import json
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zync.config.model import (
    KAFKAS_OWN,
    UNAVAILABLE_VALUE,
    Config,
    DebeziumConnector,
    DeliveredTable,
    DeliveredTopic,
    KafkaDelivery,
    Limits,
    Lookup,
    OutputRule,
    RegistryAccess,
    Transactions,
)
from zync.config.units import duration_text

FILE_NAME = "zync.schema.json"
"""What `zync init` calls the schema's file, beside `zync.yaml`, whose first line names it for editors."""

_Schema = dict[str, Any]

_ELSEWHERE = r"\$\{[^}]+\}"
"""`${NAME}` or `${file:PATH}`, which may stand in any value: what is read there is not known here."""
_TEXT: _Schema = {"type": ["string", "number", "boolean"]}
_NULL: _Schema = {"type": "null"}


def _pattern(pattern: str) -> _Schema:
    """Texts that match as a whole, or have something in them that is read from elsewhere."""
    return {"pattern": rf"^(?:{pattern})$|{_ELSEWHERE}"}


_WHOLE_NUMBER = r"\s*[+-]?[0-9]+(?:_[0-9]+)*\s*"
_SHARE = r"\s*0*(?:100(?:\.0*)?|[0-9]{1,2}(?:\.[0-9]*)?)\s*%"
_SCALARS: dict[Any, _Schema] = {
    str: _TEXT,
    Path: _TEXT,
    int: {"type": ["integer", "string"], **_pattern(_WHOLE_NUMBER)},
    float: {"type": ["integer", "string"], **_pattern(f"{_WHOLE_NUMBER}|{_SHARE}")},
    timedelta: {"type": "string", **_pattern(r"\s*[0-9]+(?:\.[0-9]+)?\s*(?:ms|s|m|h|d|w)\s*")},
}
"""What the reader accepts for each type of a single value."""

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
# Where BEGIN and END are in another topic than <prefix>.transaction, either the prefix is told or the tables are.
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
_SEVERAL: _Schema = {
    "required": ["connectors"],
    "properties": {
        "connectors": _HAS_ITEMS,
        **dict.fromkeys(("topic", "prefix", "delimiter", "tables"), False),
    },
}
_NO_ITEMS: _Schema = {"maxItems": 0}
_QUALIFIED: _Schema = {
    "items": {
        "anyOf": [
            {"type": "string", **_pattern(r".*[^.]\.+[^.].*")},
            {"type": "number", "not": {"type": "integer"}},
        ]
    }
}

FIELD_CHECKS: dict[tuple[type, str], _Schema] = {
    (DebeziumConnector, "prefix"): {"minLength": 1},
    (DeliveredTopic, "as_"): _KAFKA_TOPIC,
    (DeliveredTopic, "partitions"): {"minimum": 1},
    (DeliveredTopic, "replication"): {"minimum": 1},
    (KafkaDelivery, "progress_topic"): _KAFKA_TOPIC,
    (KafkaDelivery, "transaction_topic"): _KAFKA_TOPIC,
    (Limits, "max_quarantined"): {"minimum": 0},
    (RegistryAccess, "url"): {"type": "string", **_pattern("https?://[^@]*")},
    (RegistryAccess, "timeout"): {"not": {"pattern": r"^\s*[0.]+\s*[a-z]"}},
    (Transactions, "prefix"): {"minLength": 1},
    (Transactions, "remember"): {"minimum": 0},
    (Transactions, "uncounted"): _QUALIFIED,
    (Transactions, "unavailable_value"): {"minLength": 1},
}
"""What `load` checks of single values, beside their types."""

RECORD_CHECKS: dict[type, _Schema] = {
    # A topic that the Debezium preset covers needs no id; which those are, their names tell.
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
            "then": _SEVERAL,
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
"""What `load` checks of a mapping's keys together."""


def config_schema() -> _Schema:
    """The JSON Schema (draft 2020-12) of `zync.yaml`."""
    definitions: dict[str, _Schema] = {}
    whole = _record(Config, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "zync.yaml",
        **whole,
        "$defs": definitions,
    }


def config_schema_text() -> str:
    """The schema as the text of its file."""
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"


def documentation(kind: Any) -> tuple[str, dict[str, str]]:
    """What a dataclass's docstring says of it, in its first paragraph, and of each field, under `Attributes:`."""
    text, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")
    section = re.split(r"^(?=\S)", listed, maxsplit=1, flags=re.MULTILINE)[0]
    items = re.split(r"^ {4}(\w+)(?: \([^)]*\))?:(?= |$)", section, flags=re.MULTILINE)
    meanings = {name: " ".join(meaning.split()) for name, meaning in zip(items[1::2], items[2::2], strict=True)}
    return " ".join(text.partition("\n\n")[0].split()), meanings


def _record(kind: Any, definitions: dict[str, _Schema]) -> _Schema:
    """A mapping with the keys of the dataclass `kind`; those that it needs are put into `definitions`."""
    hints = get_type_hints(kind)
    text, meanings = documentation(kind)
    properties: dict[str, _Schema] = {}
    required = list[str]()
    for one in fields(kind):
        key = one.metadata.get("key", one.name)
        if key is None:
            continue
        meaning = {"description": meanings[one.name]} if one.name in meanings else {}
        value = _value(hints[one.name], definitions)
        properties[key] = {**meaning, **value, **FIELD_CHECKS.get((kind, one.name), {}), **_default(one)}
        if one.default is MISSING and one.default_factory is MISSING:
            required.append(key)
    return {
        "description": text,
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **RECORD_CHECKS.get(kind, {}),
    }


def _value(kind: Any, definitions: dict[str, _Schema]) -> _Schema:
    """What the reader accepts for a value of the type `kind`."""
    if isinstance(kind, type) and is_dataclass(kind):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # keeps its place before those that it needs
            definitions[kind.__name__] = _record(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        value = _value(next(arg for arg in args if arg is not NoneType), definitions)
        return _or_null(value) if NoneType in args else value
    if origin is dict:
        return {"type": "object", "additionalProperties": _value(args[1], definitions)}
    if origin is tuple:
        return {"type": "array", "items": _value(args[0], definitions)}
    if origin is Literal:
        return {"anyOf": [{"enum": list(args)}, {"type": "string", "pattern": _ELSEWHERE}]}
    return _SCALARS[kind]


def _or_null(value: _Schema) -> _Schema:
    if "type" in value:
        types = value["type"] if isinstance(value["type"], list) else [value["type"]]
        return {**value, "type": [*types, "null"]}
    return {"anyOf": [*value.get("anyOf", [value]), _NULL]}


def _default(one: "Field[Any]") -> _Schema:
    """The default, where it says something: not nothing, and not a mapping's."""
    if isinstance(one.default, timedelta):
        return {"default": duration_text(one.default)}
    return {"default": one.default} if isinstance(one.default, str | int) and one.default != "" else {}
