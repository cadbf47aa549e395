"""Converts YAML nodes to the types that `zync.config` declares; errors name the file and the line."""

import difflib
import os
import re
from collections.abc import Collection
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from zync.config.units import duration
from zync.errors import UsageError

_CORE = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _CORE + kind for kind in ("null", "bool", "int", "float", "str", "timestamp", "value", "map", "seq", "merge")
)
"""The tags that YAML resolves by itself. A value's type follows from its key, not from its tag."""
_INVALID_TEXT = re.compile(r"[\x00\ud800-\udfff]")
"""NUL and surrogates: YAML's escapes and environment variables may have them, file names and UTF-8 may not."""
_BOOLEANS = {"true": True, "false": False}
_REFERENCE = re.compile(r"\$\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))\}")


class Reader:
    """Converts YAML nodes to the types that `zync.config` declares.

    Attributes:
        path: The config file.
        base: Its folder, to which relative paths refer.
        elsewhere: By value read from the environment or a file, the reference to it (like `${NAME}`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base = path.absolute().parent
        self.elsewhere: dict[str, str] = {}

    def fail(self, node: yaml.Node | None, message: str) -> UsageError:
        """Returns an error whose message names the file and the line where `node` begins."""
        line = f":{node.start_mark.line + 1}" if node is not None else ""
        return UsageError(f"{self.path}{line}: {message}")

    def value(self, kind: Any, node: yaml.Node, key_path: str) -> Any:
        """Converts a node to a value of the type `kind`. `key_path`: its path of keys, for messages."""
        if node.tag not in _TAGS:
            raise self.fail(node, f"{key_path} has the tag {node.tag.removeprefix(_CORE)!r}: take it out")
        if is_dataclass(kind):
            return self.record(kind, node, key_path)
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            if node.tag == f"{_CORE}null" and NoneType in args:
                return None
            words = [word for arg in args if get_origin(arg) is Literal for word in get_args(arg)]
            kind = next(arg for arg in args if arg is not NoneType)
            return self.scalar(kind, node, key_path, words) if words else self.value(kind, node, key_path)
        if origin is dict:
            return {key: self.value(args[1], item, f"{key_path}.{key}") for key, _, item in self.items(node, key_path)}
        if origin is tuple:
            if not isinstance(node, yaml.SequenceNode):
                raise self.fail(node, f"{key_path} must be a list")
            return tuple(self.value(args[0], item, key_path) for item in node.value)
        return self.scalar(kind, node, key_path)

    def items(self, node: yaml.Node, key_path: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Returns a mapping's keys with the nodes of key and value.

        Raises:
            UsageError: `node` is no mapping, or has a key twice.
        """
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, f"{key_path} must have keys and values")
        entries: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, item in node.value:
            key = self.key(key_node, key_path)
            if key in entries:
                raise self.fail(key_node, f"{key!r} is there twice in {key_path}")
            entries[key] = key_node, item
        return [(key, key_node, item) for key, (key_node, item) in entries.items()]

    def key(self, node: yaml.Node, key_path: str) -> str:
        """Returns a mapping's key as its text, also if YAML resolves it to another type (`1`, `yes`)."""
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _TAGS:
            raise self.fail(node, f"{key_path} has a key that is not text")
        if node.tag == f"{_CORE}merge":
            raise self.fail(
                node, f"{key_path} has a merge key (<<), which zync does not read: write out what it stands for"
            )
        return self.text(node.value, node, f"a key of {key_path}")

    def record(self, kind: Any, node: yaml.Node, key_path: str) -> Any:
        """Converts a mapping to a value of the dataclass `kind`.

        A field with the metadata `further`, a list of names, holds the texts of the keys that have these names. A field
        with a key like `tables.catalog` is read from the mapping `tables`, which may have items by any name.
        """
        hints = get_type_hints(kind)
        fields_by_key = {field.metadata.get("key", field.name): field for field in fields(kind)}
        fields_by_key.pop(None, None)
        within = {key: fields_by_key.pop(key) for key in [*fields_by_key] if "." in key}
        further = {key: field.name for field in fields(kind) for key in field.metadata.get("further", ())}
        values: dict[str, Any] = {}
        for key, key_node, item in self.items(node, key_path):
            item_path = f"{key_path}.{key}" if key_path != "the config" else key
            if key in further:
                values.setdefault(further[key], {})[key] = self.value(str, item, item_path)
                continue
            if key not in fields_by_key:
                matches = difflib.get_close_matches(key, [*fields_by_key, *further], n=1)
                hint = f"did you mean {matches[0]!r}?" if matches else f"known are {', '.join(sorted(fields_by_key))}"
                raise self.fail(key_node, f"unknown key {key!r} in {key_path}: {hint}")
            for path, field in within.items():
                outer, _, inner = path.partition(".")
                if key == outer and (taken := self.take(hints[field.name], item, inner)):
                    item, apart = taken  # noqa: PLW2901 - what is left of it
                    values[field.name] = self.value(hints[field.name], apart, f"{item_path}.{inner}")
            name = fields_by_key[key].name
            values[name] = self.value(hints[name], item, item_path)
        for key, field in fields_by_key.items():
            if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
                raise self.fail(node, f"{key_path} needs {key!r}")
        return kind(**values)

    def take(self, kind: Any, node: yaml.Node, key: str) -> tuple[yaml.Node, yaml.Node] | None:
        """Takes an item out of a mapping of names, if the item has a key of the dataclass `kind`.

        Args:
            kind: The dataclass, or None.
            node: The mapping.
            key: The item's key.

        Returns:
            The mapping without the item, and the item; None if the item is not there, or is like the others.
        """
        names = {field.name for field in fields(next(arg for arg in get_args(kind) if arg is not NoneType))}
        for entry in node.value if isinstance(node, yaml.MappingNode) else ():
            key_node, item = entry
            keys = [inner.value for inner, _ in item.value] if isinstance(item, yaml.MappingNode) else []
            if key_node.value == key and names.intersection(text for text in keys if isinstance(text, str)):
                others = [other for other in node.value if other is not entry]
                return yaml.MappingNode(node.tag, others, node.start_mark, node.end_mark), item
        return None

    def scalar(self, kind: Any, node: yaml.Node, key_path: str, words: Collection[str] = ()) -> Any:
        """Converts a scalar node to a value of the type `kind`; `words` are values that stand for themselves."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.fail(node, f"{key_path} must be a single value")
        if node.tag == f"{_CORE}null":
            raise self.fail(node, f"{key_path} has no value: write one, or take the key out ('' is an empty text)")
        text, source = self.text(self.environment(node, key_path), node, key_path), repr(node.value)
        is_word = get_origin(kind) is Literal
        if text in (get_args(kind) if is_word else words):
            return text
        if is_word:
            raise self.fail(node, f"{key_path} must be one of {', '.join(get_args(kind))}, not {source}")
        try:
            if kind is timedelta:
                return duration(text)
            if kind is bool:
                return _BOOLEANS[text]
            if kind is float and text.endswith("%"):
                return float(text[:-1]) / 100
            if kind in (int, float):
                return int(text.replace("_", ""))
        except KeyError:
            raise self.fail(node, f"{key_path} must be true or false, not {source}") from None
        except ValueError as error:
            number = f"{source} is not a whole number" + " or a share like 5%" * (kind is float)
            number += "".join(f", or {word}" for word in words)
            error_text = str(error).replace(repr(text), source) if kind is timedelta else number
            raise self.fail(node, f"{key_path}: {error_text}") from None
        return self.base / text if kind is Path else text

    def environment(self, node: yaml.ScalarNode, key_path: str) -> str:
        """Returns the node's text with `${NAME}` replaced from the environment and `${file:PATH}` from that file."""

        def read(match: re.Match[str]) -> str:
            if match["file"]:
                try:
                    value = (self.base / match["file"]).read_text(encoding="utf-8").rstrip("\r\n")
                except (OSError, ValueError) as error:
                    reason = error.strerror if isinstance(error, OSError) else "it is not text"
                    raise self.fail(
                        node, f"{key_path} needs the file {match['file']}, and cannot read it: {reason}"
                    ) from None
            elif match["name"] in os.environ:
                value = os.environ[match["name"]]
            else:
                raise self.fail(node, f"{key_path} needs the environment variable {match['name']}, which is not set")
            self.elsewhere[value] = match[0]
            return value

        return _REFERENCE.sub(read, cast("str", node.value))

    def text(self, text: str, node: yaml.Node, key_path: str) -> str:
        """Returns `text` unchanged.

        Raises:
            UsageError: It has a character that file names or UTF-8 cannot have.
        """
        if invalid := _INVALID_TEXT.search(text):
            raise self.fail(node, f"{key_path} has a character that is no text ({invalid[0]!r})")
        return text

    def location(self, lake: str) -> str:
        """Returns a lake's or table's absolute path; a URI unchanged."""
        return lake if "://" in lake else str((self.base / lake).absolute())


def find(node: yaml.Node | None, *keys: str) -> yaml.Node | None:
    """Returns the node at a path of keys, or the deepest existing node on the path."""
    for key in keys:
        values = [item for name, item in node.value if name.value == key] if isinstance(node, yaml.MappingNode) else []
        if not values:
            return node
        node = values[0]
    return node
