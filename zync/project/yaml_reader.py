"""Nodes of a YAML file to the types that `zync.config` declares; what is none of them is an error of file and line."""

import difflib
import os
import re
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
"""Those that YAML gives a node by itself; what a value is follows from its key, not from its tag."""
_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")
"""NUL, and half of a character: YAML's escapes and environment variables may have them, file names and UTF-8 do not."""
_ELSEWHERE = re.compile(r"\$\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))\}")


class Reader:
    """Turns YAML nodes into the types that `zync.config` declares."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base = path.absolute().parent
        self.elsewhere: dict[str, str] = {}

    def fail(self, node: yaml.Node | None, message: str) -> UsageError:
        """The error that says so of the file, and of the line where the node begins."""
        line = f":{node.start_mark.line + 1}" if node is not None else ""
        return UsageError(f"{self.path}{line}: {message}")

    def value(self, kind: Any, node: yaml.Node, where: str) -> Any:
        """`node` as a value of the type `kind`."""
        if node.tag not in _TAGS:
            raise self.fail(node, f"{where} has the tag {node.tag.removeprefix(_CORE)!r}: take it out")
        if is_dataclass(kind):
            return self.record(kind, node, where)
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            if node.tag == f"{_CORE}null" and NoneType in args:
                return None
            return self.value(next(arg for arg in args if arg is not NoneType), node, where)
        if origin is dict:
            return {key: self.value(args[1], item, f"{where}.{key}") for key, _, item in self.items(node, where)}
        if origin is tuple:
            if not isinstance(node, yaml.SequenceNode):
                raise self.fail(node, f"{where} must be a list")
            return tuple(self.value(args[0], item, where) for item in node.value)
        return self.scalar(kind, node, where)

    def items(self, node: yaml.Node, where: str) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Of a mapping (its keys, where they stand, their values); none twice."""
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, f"{where} must have keys and values")
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, item in node.value:
            key = self.key(key_node, where)
            if key in found:
                raise self.fail(key_node, f"{key!r} is there twice in {where}")
            found[key] = key_node, item
        return [(key, key_node, item) for key, (key_node, item) in found.items()]

    def key(self, node: yaml.Node, where: str) -> str:
        """A key of the mapping `where`: its text, whatever else YAML would take `1`, `yes` or `null` for."""
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _TAGS:
            raise self.fail(node, f"{where} has a key that is not text")
        if node.tag == f"{_CORE}merge":
            raise self.fail(
                node, f"{where} has a merge key (<<), which zync does not read: write out what it stands for"
            )
        return self.text(node.value, node, f"a key of {where}")

    def record(self, kind: Any, node: yaml.Node, where: str) -> Any:
        """`node` as a value of the dataclass `kind`."""
        hints = get_type_hints(kind)
        known = {one.metadata.get("key", one.name): one for one in fields(kind)}
        known.pop(None, None)
        given: dict[str, Any] = {}
        for key, key_node, item in self.items(node, where):
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
                raise self.fail(key_node, f"unknown key {key!r} in {where}: {hint}")
            name = known[key].name
            given[name] = self.value(hints[name], item, f"{where}.{key}" if where != "the config" else key)
        for key, one in known.items():
            if one.name not in given and one.default is MISSING and one.default_factory is MISSING:
                raise self.fail(node, f"{where} needs {key!r}")
        return kind(**given)

    def scalar(self, kind: Any, node: yaml.Node, where: str) -> Any:
        """`node` as a value of a type that holds no others."""
        if not isinstance(node, yaml.ScalarNode):
            raise self.fail(node, f"{where} must be a single value")
        if node.tag == f"{_CORE}null":
            raise self.fail(node, f"{where} has no value: write one, or take the key out ('' is an empty text)")
        text, written = self.text(self.environment(node, where), node, where), repr(node.value)
        if get_origin(kind) is Literal:
            if text not in get_args(kind):
                raise self.fail(node, f"{where} must be one of {', '.join(get_args(kind))}, not {written}")
            return text
        try:
            if kind is timedelta:
                return duration(text)
            if kind is float and text.endswith("%"):
                return float(text[:-1]) / 100
            if kind in (int, float):
                return int(text.replace("_", ""))
        except ValueError as error:
            number = f"{written} is not a whole number" + " or a share like 5%" * (kind is float)
            wanted = str(error).replace(repr(text), written) if kind is timedelta else number
            raise self.fail(node, f"{where}: {wanted}") from None
        return self.base / text if kind is Path else text

    def environment(self, node: yaml.ScalarNode, where: str) -> str:
        """The node's text with every `${NAME}` read from the environment, and `${file:PATH}` from that file."""

        def read(match: re.Match[str]) -> str:
            if match["file"]:
                try:
                    found = (self.base / match["file"]).read_text(encoding="utf-8").rstrip("\r\n")
                except (OSError, ValueError) as error:
                    why = error.strerror if isinstance(error, OSError) else "it is not text"
                    raise self.fail(
                        node, f"{where} needs the file {match['file']}, and cannot read it: {why}"
                    ) from None
            elif match["name"] in os.environ:
                found = os.environ[match["name"]]
            else:
                raise self.fail(node, f"{where} needs the environment variable {match['name']}, which is not set")
            self.elsewhere[found] = match[0]
            return found

        return _ELSEWHERE.sub(read, cast("str", node.value))

    def text(self, text: str, node: yaml.Node, where: str) -> str:
        """`text`, if files can be called so and UTF-8 can have it."""
        if odd := _NO_TEXT.search(text):
            raise self.fail(node, f"{where} has a character that is no text ({odd[0]!r})")
        return text

    def location(self, lake: str) -> str:
        """A lake or a table as an absolute path, or as the URI it is."""
        return lake if "://" in lake else str((self.base / lake).absolute())


def find(node: yaml.Node | None, *keys: str) -> yaml.Node | None:
    """The node at that path of keys, or the deepest there is on the way."""
    for key in keys:
        found = [item for one, item in node.value if one.value == key] if isinstance(node, yaml.MappingNode) else []
        if not found:
            return node
        node = found[0]
    return node
