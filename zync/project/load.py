"""Reads `zync.yaml` into `zync.config`: what its file holds, and whether its parts fit together."""

import difflib
import math
import re
from dataclasses import replace
from pathlib import Path

import yaml

from zync.config.model import (
    KAFKAS_OWN,
    Config,
    DebeziumConnector,
    DebeziumModes,
    Lookup,
    Part,
    RegistryAccess,
    Transactions,
)
from zync.config.topics import compile_regex
from zync.debezium import preset
from zync.errors import UsageError
from zync.project.yaml_reader import Reader, find

_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""A name that Kafka takes for a topic."""
_MOST_COPIES = 2**31 - 1
"""Of partitions and copies of a topic: Kafka's protocol has 32 bits for them."""
_MOST_REMEMBERED = 2**63 - 1
"""Seqnos have 64 bits."""
_SCHEMA_FILES: tuple[tuple[Part, str], ...] = (("key", "key_avro_schema"), ("value", "avro_schema"))


def load(path: Path) -> Config:
    """The config in the file at `path`. UsageError names `file:line` of the first thing that is wrong."""
    reader = Reader(path)
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
    if node is not None and node.tag == "tag:yaml.org,2002:null":  # as where all but `---` is commented out
        node = None
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
    _check_rules(config, reader, node)  # first: the preset reads them
    return _checked(preset.expand(_preset(config, reader, node)), reader, node)


def _why_no_file(path: Path) -> str | None:
    """Why nothing can be read at that path, as the end of a sentence about it; None where there is a file."""
    try:
        if path.is_file():
            return None
        return "is a folder" if path.is_dir() else "is not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _why_no_text(path: Path) -> str | None:
    """Why the file at that path cannot be read as text, likewise; None where it can."""
    if why := _why_no_file(path):
        return why
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _preset(config: Config, reader: Reader, node: yaml.Node | None) -> Config:
    """`config`, if it says of every topic where the id is, or leaves that to a preset; UsageError otherwise."""
    said = config.transactions
    where, listed = find(node, "transactions"), find(node, "transactions", "connectors")
    _check_keys_of_preset(said, reader, where)
    for number, connector in enumerate(said.sources):
        if said.connectors and isinstance(listed, yaml.SequenceNode):
            _check_connector(connector, reader, listed.value[number], f"transactions.connectors[{number}].")
        else:
            _check_connector(replace(connector, topic=said.topic or ""), reader, where, "transactions.")
    _check_apart(said.sources, reader, listed)
    for table in said.uncounted:
        if "." not in table.strip("."):
            text = f"transactions.uncounted: {table!r} must name the table as END does, with its schema or database"
            raise reader.fail(find(node, "transactions", "uncounted"), text)
    if not said.preset and config.debezium != DebeziumModes():
        raise reader.fail(find(node, "debezium"), "debezium needs transactions.preset: debezium")
    for name, topic in config.topics.items():
        if preset.covers(said, name):
            _check_covered(config, name, reader, find(node, "topics", name))
        elif not topic.id:
            raise reader.fail(find(node, "topics", name), f"topics.{name} needs 'id'")
    return config


def _check_keys_of_preset(said: Transactions, reader: Reader, node: yaml.Node | None) -> None:
    """UsageError for the first key of `transactions` that does not go with `preset`, or needs it."""
    if said.preset is None:
        if said.topic or said.order != "completion":
            raise reader.fail(node, "transactions.topic and transactions.order need transactions.preset")
        if said.incomplete:
            raise reader.fail(find(node, "incomplete"), "transactions.incomplete needs order: commit")
        for key in ("prefix", "delimiter", "tables", "connectors", "uncounted", "unavailable_value"):
            if getattr(said, key) != getattr(Transactions(), key):
                raise reader.fail(find(node, key), f"transactions.{key} needs transactions.preset")
        return
    if not said.unavailable_value:
        raise reader.fail(
            find(node, "unavailable_value"), "transactions.unavailable_value must have at least one character"
        )
    if said.incomplete and said.order != "commit":
        raise reader.fail(find(node, "incomplete"), "transactions.incomplete needs order: commit")
    if find(node, "done") is not node:
        raise reader.fail(node, "transactions needs one of preset and done")
    for key in ("topic", "prefix", "delimiter", "tables") if said.connectors else ():
        if (at := find(node, key)) is not node:
            raise reader.fail(at, f"transactions.{key}: say it of each of transactions.connectors")


def _check_covered(config: Config, name: str, reader: Reader, node: yaml.Node | None) -> None:
    """UsageError where the config says of a topic of the preset's what the preset knows itself."""
    topic = config.topics[name]
    ends = name in config.transactions.end_topics
    if topic.id and not ends:
        return
    for key, wrong, why in (
        ("id", topic.id, "BEGIN and END name their transaction themselves"),
        ("record_id", topic.record_id, "the preset finds repeats by itself"),
        ("null_id", topic.null_id != "single", "under the preset what is in no transaction is one by itself (single)"),
    ):
        if wrong and (at := find(node, key)) is not node:
            raise reader.fail(at, f"topics.{name}.{key}: {why}: take it out")


def _check_connector(one: DebeziumConnector, reader: Reader, node: yaml.Node | None, where: str) -> None:
    """UsageError unless it says what its topics are called."""
    if find(node, "delimiter") is not node and one.prefix is None:
        raise reader.fail(find(node, "delimiter"), f"{where}delimiter needs prefix: the connector's topic.prefix")
    if (
        not one.topic
        or one.prefix == ""
        or (one.prefix is None and not one.tables and not one.topic.endswith(".transaction"))
    ):
        raise reader.fail(
            node,
            f"{where}topic must name the connector's topic of BEGIN and END: <prefix>.transaction. Where Debezium's "
            "topic.transaction or topic.delimiter make it another, say prefix, too (Debezium's topic.prefix), and "
            "delimiter; where a router renames the topics, name them as tables",
        )
    for table in one.tables:
        if table.startswith("^"):
            try:
                compile_regex(table)
            except ValueError as error:
                raise reader.fail(find(node, "tables"), f"{where}tables: {error}") from None


def _check_apart(sources: tuple[DebeziumConnector, ...], reader: Reader, node: yaml.Node | None) -> None:
    """UsageError where two connectors have one name, or one topic of BEGIN and END."""
    for what, of_each in (
        ("topic", [one.topic for one in sources]),
        ("name", [one.label for one in sources]),
        ("prefix", [one.begins for one in sources if not one.tables]),
    ):
        if twice := sorted({one for one in of_each if of_each.count(one) > 1}):
            raise reader.fail(node, f"two of transactions.connectors have the {what} {twice[0]!r}")


def _checked(config: Config, reader: Reader, node: yaml.Node | None) -> Config:
    """`config`, if its parts fit together; UsageError otherwise."""
    for name, topic in config.topics.items():
        if name.startswith("^"):
            try:
                compile_regex(name)
            except ValueError as error:
                raise reader.fail(find(node, "topics", name), f"topics: {error}") from None
        if topic.as_ and topic.as_.lower() == "records":
            at = find(node, "topics", name)
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
            raise reader.fail(find(node, *where), msg)
    _check_deliveries(config, reader, node)
    for name, lookup in config.lookups.items():
        _check_lookup(name, lookup, reader, find(node, "lookups", name))
    most = config.limits.max_quarantined
    if not 0 <= most < math.inf or (isinstance(most, float) and most > 1):
        text = "limits.max_quarantined must be 0 or more, or a share of at most 100%"
        raise reader.fail(find(node, "limits", "max_quarantined"), text)
    if not 0 <= config.transactions.remember <= _MOST_REMEMBERED:
        text = f"transactions.remember must be 0 or more, and {_MOST_REMEMBERED} at most"
        raise reader.fail(find(node, "transactions", "remember"), text)
    return config


def _check_formats(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    for name, topic in config.topics.items():
        at = find(node, "topics", name)
        kinds = set[str]()
        for part, key in _SCHEMA_FILES:
            kind, file = config.format(topic, part), topic.schema_file(part)
            if file and kind != "avro":
                raise reader.fail(at, f"topics.{name}.{key} needs {part}: avro")
            if file and (why := _why_no_text(file)):
                raise reader.fail(at, f"the schema {file} of topic {name!r} {why}")
            kinds |= set() if file else {kind}
        if topic.schema and config.format(topic, "value") in ("string", "bytes"):
            raise reader.fail(at, f"topics.{name}.schema is for values with fields, not {topic.value or 'these'}")
        if config.registry is None and (framed := sorted(kinds & {"avro", "protobuf", "json-schema"})):
            raise reader.fail(at, f"topic {name!r} is {framed[0]}, which needs a schema registry: say registry.url")
    _check_registry(config.registry, reader, find(node, "registry"), "registry")
    said = config.kafka_delivery
    _check_registry(said.registry, reader, find(node, "deliver", "kafka", "registry"), "deliver.kafka.registry")
    kinds = {config.delivered_format(rule.topic, part) for rule in config.outputs for part in ("key", "value")}
    if config.delivered_registry is None and (framed := sorted(kinds - {"json"})):
        at = find(node, "deliver", "kafka")
        raise reader.fail(at, f"deliver.kafka: {framed[0]} needs a schema registry: say registry.url")


def _check_registry(access: RegistryAccess | None, reader: Reader, node: yaml.Node | None, where: str) -> None:
    if access is None:
        return
    if not access.url.startswith(("http://", "https://")):
        raise reader.fail(find(node, "url"), f"{where}.url must begin with http:// or https://")
    for path in (access.ca, access.certificate, access.certificate_key):
        if path and (why := _why_no_file(path)):
            raise reader.fail(node, f"{where}: the file {path} {why}")
    if not access.timeout:
        raise reader.fail(find(node, "timeout"), f"{where}.timeout must be more than nothing")
    if "@" in access.url:  # it would be shown in errors
        raise reader.fail(find(node, "url"), f"{where}.url must have no user or password in it: say {where}.basic_auth")


def _check_rules(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    """UsageError for the first rule that is not there to be read."""
    outputs = find(node, "outputs")
    for number, rule in enumerate(config.outputs):
        at = outputs.value[number] if isinstance(outputs, yaml.SequenceNode) else outputs
        if (rule.sql is None) == (rule.python is None):
            raise reader.fail(at, f"the output to {rule.topic!r} needs one of sql and python")
        if why := _why_no_text(rule.file):
            raise reader.fail(at, f"the rule {rule.file} of output {rule.topic!r} {why}")


def _check_deliveries(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    said = config.kafka_delivery
    outputs = [rule.topic for rule in config.outputs]
    if said.transaction_topic in outputs:
        at = find(node, "deliver", "kafka", "transaction_topic")
        raise reader.fail(at, f"deliver.kafka.transaction_topic: {said.transaction_topic!r} is an output: name another")
    known = outputs + ([said.transaction_topic] if said.transaction_topic else [])
    taken: dict[str, str] = {said.progress_topic: "progress_topic"}
    for output in dict.fromkeys(known):
        other = taken.setdefault(said.target(output), output)
        if other != output:
            raise reader.fail(
                find(node, "deliver", "kafka"), f"{other} and {output} would both go to topic {said.target(output)}"
            )
    named: list[tuple[str | None, tuple[str, ...]]] = [
        (said.progress_topic, ("progress_topic",)),
        (said.transaction_topic, ("transaction_topic",)),
        *((one.as_, ("topics", output, "as")) for output, one in said.topics.items()),
    ]
    for name, key in named:
        if name is not None and not _TOPIC.fullmatch(name):
            at = find(node, "deliver", "kafka", *key)
            text = "a topic of Kafka has up to 249 of a-z, A-Z, 0-9, '.', '_' and '-' for a name"
            raise reader.fail(at, f"deliver.kafka.{'.'.join(key)}: {text}, not {name!r}")
        if name in KAFKAS_OWN:
            at = find(node, "deliver", "kafka", *key)
            raise reader.fail(at, f"deliver.kafka.{'.'.join(key)}: {name!r} is a topic of Kafka's own: name another")
    for output, where in (
        *((one, ("deliver", "kafka", "topics")) for one in said.topics),
        *((one, ("deliver", "tables")) for one in config.deliver.tables or ()),
    ):
        if config.outputs and output not in known:
            near = difflib.get_close_matches(output, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"outputs are {', '.join(known)}"
            raise reader.fail(find(node, *where, output), f"no output {output!r}: {hint}")
    for output, topic in said.topics.items():
        if not all(1 <= count <= _MOST_COPIES for count in (topic.partitions, topic.replication) if count is not None):
            at = find(node, "deliver", "kafka", "topics", output)
            text = f"partitions and replication must be 1 or more (and {_MOST_COPIES:,} at most)"
            raise reader.fail(at, f"deliver.kafka.topics.{output}: {text}")
    for output, table in (config.deliver.tables or {}).items():
        if table.partition_by and table.cluster_by:
            at = find(node, "deliver", "tables", output)
            raise reader.fail(at, f"deliver.tables.{output}: Delta has partition_by or cluster_by, not both: say one")


def _check_lookup(name: str, lookup: Lookup, reader: Reader, node: yaml.Node | None) -> None:
    given = [kind for kind in ("csv", "json", "delta") if getattr(lookup, kind) is not None]
    if len(given) != 1:
        raise reader.fail(node, f"lookup {name!r} needs exactly one of csv, json and delta")
    path = lookup.csv or lookup.json
    if path and (why := _why_no_file(path)):
        raise reader.fail(node, f"the {given[0]} file {path} of lookup {name!r} {why}")
