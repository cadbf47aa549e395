"""Reads `zync.yaml` into `zync.config`, and says file, line and nearest known key when it cannot."""

import difflib
import math
import os
import re
from dataclasses import MISSING, fields, is_dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from zync.config import Config, Lookup, OutputRule, RegistryAccess, duration
from zync.errors import UsageError
from zync.transactions.debezium import preset


def load(path: Path) -> Config:
    """The config in the file at `path`. UsageError names `file:line` of the first thing that is wrong."""
    reader = _Reader(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        msg = f"no config at {path}: `zync init` writes one, --config names another"
        raise UsageError(msg) from None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise UsageError(msg) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        msg = f"{path}:{line}: not YAML: {error.problem}"
        raise UsageError(msg) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        msg = f"{path}:{line}: not YAML: {error.reason} (#x{ord(text[error.position]):04x})"
        raise UsageError(msg) from error
    except RecursionError as error:
        msg = f"{path}:1: nested too deeply to be a config"
        raise UsageError(msg) from error
    config: Config = reader.value(Config, node, "the config") if node is not None else Config()
    rules = tuple(
        replace(rule, python=str(reader.base / rule.python)) if rule.python else rule for rule in config.outputs
    )
    lookups = {
        name: replace(one, delta=reader.location(one.delta)) if one.delta else one
        for name, one in config.lookups.items()
    }
    lake = reader.location(config.lake)
    config = replace(
        config, lake=lake, outputs=rules, lookups=lookups, path=path.absolute(), elsewhere=reader.elsewhere
    )
    return _checked(preset.expand(_preset(config, reader, node)), reader, node)


def _is_file(path: Path) -> bool:
    """Whether there is such a file; not, where there cannot be one of that name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


_ELSEWHERE = re.compile(r"\$\{(?:file:(?P<file>[^}]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))\}")


class _Reader:
    """Turns YAML nodes into the types that `zync.config` declares."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base = path.absolute().parent
        self.elsewhere: dict[str, str] = {}

    def fail(self, node: yaml.Node | None, message: str) -> UsageError:
        line = f":{node.start_mark.line + 1}" if node is not None else ""
        return UsageError(f"{self.path}{line}: {message}")

    def value(self, kind: Any, node: yaml.Node, where: str) -> Any:
        """`node` as a value of the type `kind`."""
        if is_dataclass(kind):
            return self.record(kind, node, where)
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            if node.tag == "tag:yaml.org,2002:null":
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
        if not isinstance(node, yaml.MappingNode):
            raise self.fail(node, f"{where} must have keys and values")
        seen: dict[str, yaml.Node] = {}
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise self.fail(key_node, f"{key_node.value!r} is there twice in {where}")
            seen[key_node.value] = key_node
        return [(key_node.value, key_node, item) for key_node, item in node.value]

    def record(self, kind: Any, node: yaml.Node, where: str) -> Any:
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
        if not isinstance(node, yaml.ScalarNode):
            raise self.fail(node, f"{where} must be a single value")
        text, written = self.environment(node, where), repr(node.value)
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

    def location(self, lake: str) -> str:
        """A lake or a table as an absolute path, or as the URI it is."""
        return lake if "://" in lake else str((self.base / lake).absolute())


def _preset(config: Config, reader: _Reader, node: yaml.Node | None) -> Config:
    """`config`, if it says of every topic where the id is, or leaves that to a preset; UsageError otherwise."""
    said = config.transactions
    where = _find(node, "transactions")
    if said.preset and not (said.topic or "").endswith(".transaction"):
        raise reader.fail(
            where, "transactions.topic must name the connector's topic of BEGIN and END: <prefix>.transaction"
        )
    if said.preset and _find(node, "transactions", "done") is not where:
        raise reader.fail(where, "transactions needs one of preset and done")
    if not said.preset and (said.topic or said.order != "completion"):
        raise reader.fail(where, "transactions.topic and transactions.order need transactions.preset")
    for name, topic in config.topics.items():
        if not topic.id and not preset.covers(said, name):
            raise reader.fail(_find(node, "topics", name), f"topics.{name} needs 'id'")
    return config


def _find(node: yaml.Node | None, *keys: str) -> yaml.Node | None:
    """The node at that path of keys, or the deepest there is on the way."""
    for key in keys:
        found = [item for one, item in node.value if one.value == key] if isinstance(node, yaml.MappingNode) else []
        if not found:
            return node
        node = found[0]
    return node


def _checked(config: Config, reader: _Reader, node: yaml.Node | None) -> Config:
    """`config`, if its parts fit together; UsageError otherwise."""
    for name, topic in config.topics.items():
        if name.startswith("^"):
            try:
                re.compile(name)
            except re.error as error:
                at = _find(node, "topics", name)
                raise reader.fail(at, f"topics: {name!r} is not a regular expression: {error}") from None
        if topic.as_ and topic.as_.lower() == "records":
            at = _find(node, "topics", name)
            raise reader.fail(at, f"topics.{name}.as: 'records' is the view of all topics: take another name")
    _check_formats(config, reader, node)
    names = {"records": "the view of all topics", "raw": "the table raw", "staging": "the table staging"}
    for view, source, where in [
        *((topic.as_ or name, f"topic {name!r}", ("topics", name)) for name, topic in config.topics.items()),
        *((name, f"lookup {name!r}", ("lookups", name)) for name in config.lookups),
    ]:
        other = names.setdefault(view.lower(), source)
        if other is not source:
            msg = f"{source} and {other} have the same view name {view!r}: say `as:` on one"
            raise reader.fail(_find(node, *where), msg)
    outputs = _find(node, "outputs")
    for number, rule in enumerate(config.outputs):
        _check_rule(rule, reader, outputs.value[number] if isinstance(outputs, yaml.SequenceNode) else outputs)
    _check_deliveries(config, reader, node)
    for name, lookup in config.lookups.items():
        _check_lookup(name, lookup, reader, _find(node, "lookups", name))
    if not 0 <= config.limits.max_quarantined < math.inf:
        raise reader.fail(_find(node, "limits", "max_quarantined"), "limits.max_quarantined must be 0 or more")
    if config.transactions.remember < 0:
        raise reader.fail(_find(node, "transactions", "remember"), "transactions.remember must be 0 or more")
    return config


def _check_formats(config: Config, reader: _Reader, node: yaml.Node | None) -> None:
    for name, topic in config.topics.items():
        at = _find(node, "topics", name)
        kinds = {config.format(topic, "key"), "json" if topic.avro_schema else config.format(topic, "value")}
        if topic.avro_schema and config.format(topic, "value") != "avro":
            raise reader.fail(at, f"topics.{name}.avro_schema needs value: avro")
        if topic.schema and config.format(topic, "value") in ("string", "bytes"):
            raise reader.fail(at, f"topics.{name}.schema is for values with fields, not {topic.value or 'these'}")
        if topic.avro_schema and not _is_file(topic.avro_schema):
            raise reader.fail(at, f"the schema {topic.avro_schema} of topic {name!r} is not there")
        if config.registry is None and (framed := sorted(kinds & {"avro", "protobuf", "json-schema"})):
            raise reader.fail(at, f"topic {name!r} is {framed[0]}, which needs a schema registry: say registry.url")
    _check_registry(config.registry, reader, _find(node, "registry"), "registry")
    said = config.kafka_delivery
    _check_registry(said.registry, reader, _find(node, "deliver", "kafka", "registry"), "deliver.kafka.registry")
    kinds = {config.delivered_format(rule.topic, part) for rule in config.outputs for part in ("key", "value")}
    if config.delivered_registry is None and (framed := sorted(kinds - {"json"})):
        at = _find(node, "deliver", "kafka")
        raise reader.fail(at, f"deliver.kafka: {framed[0]} needs a schema registry: say registry.url")


def _check_registry(access: RegistryAccess | None, reader: _Reader, node: yaml.Node | None, where: str) -> None:
    if access is None:
        return
    if not access.url.startswith(("http://", "https://")):
        raise reader.fail(_find(node, "url"), f"{where}.url must begin with http:// or https://")
    for path in (access.ca, access.certificate, access.certificate_key):
        if path and not _is_file(path):
            raise reader.fail(node, f"{where}: the file {path} is not there")
    if "@" in access.url:  # it would be shown in errors
        raise reader.fail(
            _find(node, "url"), f"{where}.url must have no user or password in it: say {where}.basic_auth"
        )


def _check_rule(rule: OutputRule, reader: _Reader, node: yaml.Node | None) -> None:
    if (rule.sql is None) == (rule.python is None):
        raise reader.fail(node, f"the output to {rule.topic!r} needs one of sql and python")
    if rule.sql and not _is_file(rule.sql):
        raise reader.fail(node, f"the rule {rule.sql} of output {rule.topic!r} is not there")


def _check_deliveries(config: Config, reader: _Reader, node: yaml.Node | None) -> None:
    said = config.kafka_delivery
    known = [rule.topic for rule in config.outputs] + ([said.transaction_topic] if said.transaction_topic else [])
    taken: dict[str, str] = {said.progress_topic: "progress_topic"}
    for output in dict.fromkeys(known):
        other = taken.setdefault(said.target(output), output)
        if other != output:
            raise reader.fail(
                _find(node, "deliver", "kafka"), f"{other} and {output} would both go to topic {said.target(output)}"
            )
    for output, where in (
        *((one, ("deliver", "kafka", "topics")) for one in said.topics),
        *((one, ("deliver", "tables")) for one in config.deliver.tables or ()),
    ):
        if config.outputs and output not in known:
            near = difflib.get_close_matches(output, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"outputs are {', '.join(known)}"
            raise reader.fail(_find(node, *where, output), f"no output {output!r}: {hint}")
    for output, topic in said.topics.items():
        if min(one for one in (topic.partitions, topic.replication, 1) if one is not None) < 1:
            at = _find(node, "deliver", "kafka", "topics", output)
            raise reader.fail(at, f"deliver.kafka.topics.{output}: partitions and replication must be 1 or more")
    for output, table in (config.deliver.tables or {}).items():
        if table.partition_by and table.cluster_by:
            at = _find(node, "deliver", "tables", output)
            raise reader.fail(at, f"deliver.tables.{output}: Delta has partition_by or cluster_by, not both: say one")


def _check_lookup(name: str, lookup: Lookup, reader: _Reader, node: yaml.Node | None) -> None:
    given = [kind for kind in ("csv", "json", "delta") if getattr(lookup, kind) is not None]
    if len(given) != 1:
        raise reader.fail(node, f"lookup {name!r} needs exactly one of csv, json and delta")
    path = lookup.csv or lookup.json
    if path and not _is_file(path):
        raise reader.fail(node, f"the {given[0]} file {path} of lookup {name!r} is not there")
