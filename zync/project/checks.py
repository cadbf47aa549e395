"""Checks that the parts of a config are right and fit together. An error names `file:line`."""

import difflib
import math
import re
import stat
from dataclasses import fields, replace
from pathlib import Path

import yaml

from zync.config.model import (
    KAFKAS_OWN,
    Config,
    DebeziumConnector,
    DebeziumModes,
    Lookup,
    OutputRule,
    Part,
    RegistryAccess,
    Transactions,
)
from zync.config.rule_modules import installed_twin, module_names
from zync.config.storage import Storage
from zync.config.table_properties import APPEND_ONLY, property_error
from zync.config.topic_names import compile_regex
from zync.debezium import preset
from zync.lake import storage
from zync.lake.paths import is_local, locate
from zync.project.catalog_checks import catalog_errors
from zync.project.yaml_reader import Reader, find

_TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""A valid name of a Kafka topic."""
_MAX_INT32 = 2**31 - 1
"""The most partitions and replicas of a topic: Kafka's protocol has 32 bits for them."""
_MAX_INT64 = 2**63 - 1
"""The most records that `remember` may count: seqnos have 64 bits."""
_OTHER_FENCE = re.compile(r"unsafe_rename|copy_if_not_exists|conditional_put|locking_provider", re.IGNORECASE)
"""Options by which delta-rs commits without the conditional put, or beside it."""
_SCHEMA_FILES: tuple[tuple[Part, str], ...] = (("key", "key_avro_schema"), ("value", "avro_schema"))


def _file_error(path: Path) -> str | None:
    """Returns why `path` is no readable file, as the end of a sentence about it; None if it is a file."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # of a NUL in it
        return "is not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if stat.S_ISREG(mode):
        return None
    return "is a folder" if stat.S_ISDIR(mode) else "is not a file"


def _text_error(path: Path) -> str | None:
    """Returns why `path` cannot be read as text, as the end of a sentence about it; None if it can."""
    if error_text := _file_error(path):
        return error_text
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (byte {error.start})"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def check_preset_keys(config: Config, reader: Reader, node: yaml.Node | None) -> Config:
    """Checks that every topic has an `id` or is covered by the preset, and checks the preset's keys.

    Returns:
        `config`, unchanged.

    Raises:
        UsageError: A check failed.
    """
    transactions = config.transactions
    transactions_node, connectors_node = find(node, "transactions"), find(node, "transactions", "connectors")
    _check_transactions(transactions, reader, transactions_node)
    for number, connector in enumerate(transactions.sources):
        if transactions.connectors and isinstance(connectors_node, yaml.SequenceNode):
            _check_connector(connector, reader, connectors_node.value[number], f"transactions.connectors[{number}].")
        else:
            single = replace(connector, topic=transactions.topic or "")
            _check_connector(single, reader, transactions_node, "transactions.")
    _check_distinct(transactions.sources, reader, connectors_node)
    for table in transactions.uncounted:
        if "." not in table.strip("."):
            text = f"transactions.uncounted: {table!r} must name the table as END does, with its schema or database"
            raise reader.fail(find(node, "transactions", "uncounted"), text)
    if not transactions.preset and config.debezium != DebeziumModes():
        raise reader.fail(find(node, "debezium"), "debezium needs transactions.preset: debezium")
    for name, topic in config.topics.items():
        if preset.covers(transactions, name):
            _check_covered(config, name, reader, find(node, "topics", name))
        elif not topic.id:
            raise reader.fail(find(node, "topics", name), f"topics.{name} needs 'id'")
    return config


def _check_transactions(transactions: Transactions, reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError for the first key of `transactions` that conflicts with `preset`, or needs it."""
    if transactions.preset is None:
        if transactions.topic or transactions.order != "completion":
            raise reader.fail(node, "transactions.topic and transactions.order need transactions.preset")
        if transactions.incomplete:
            raise reader.fail(find(node, "incomplete"), "transactions.incomplete needs order: commit")
        for key in ("prefix", "delimiter", "tables", "connectors", "uncounted", "unavailable_value"):
            if getattr(transactions, key) != getattr(Transactions(), key):
                raise reader.fail(find(node, key), f"transactions.{key} needs transactions.preset")
        return
    if not transactions.unavailable_value:
        raise reader.fail(
            find(node, "unavailable_value"), "transactions.unavailable_value must have at least one character"
        )
    if transactions.incomplete and transactions.order != "commit":
        raise reader.fail(find(node, "incomplete"), "transactions.incomplete needs order: commit")
    if find(node, "done") is not node:
        raise reader.fail(node, "transactions needs one of preset and done")
    for key in ("topic", "prefix", "delimiter", "tables") if transactions.connectors else ():
        if (key_node := find(node, key)) is not node:
            raise reader.fail(key_node, f"transactions.{key}: say it of each of transactions.connectors")


def _check_covered(config: Config, name: str, reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError where the config sets a key of a covered topic that the preset sets itself."""
    topic = config.topics[name]
    is_end_topic = name in config.transactions.end_topics
    if topic.id and not is_end_topic:
        return
    for key, is_set, reason in (
        ("id", topic.id, "BEGIN and END name their transaction themselves"),
        ("record_id", topic.record_id, "the preset finds repeats by itself"),
        ("null_id", topic.null_id != "single", "under the preset what is in no transaction is one by itself (single)"),
    ):
        if is_set and (key_node := find(node, key)) is not node:
            raise reader.fail(key_node, f"topics.{name}.{key}: {reason}: take it out")


def _check_connector(connector: DebeziumConnector, reader: Reader, node: yaml.Node | None, prefix: str) -> None:
    """Raises UsageError unless the connector names its topics. `prefix`: the path of its keys, for messages."""
    if find(node, "delimiter") is not node and connector.prefix is None:
        raise reader.fail(find(node, "delimiter"), f"{prefix}delimiter needs prefix: the connector's topic.prefix")
    if (
        not connector.topic
        or connector.prefix == ""
        or (connector.prefix is None and not connector.tables and not connector.topic.endswith(".transaction"))
    ):
        raise reader.fail(
            node,
            f"{prefix}topic must name the connector's topic of BEGIN and END: <prefix>.transaction. Where Debezium's "
            "topic.transaction or topic.delimiter make it another, say prefix, too (Debezium's topic.prefix), and "
            "delimiter; where a router renames the topics, name them as tables",
        )
    for table in connector.tables:
        if table.startswith("^"):
            try:
                compile_regex(table)
            except ValueError as error:
                raise reader.fail(find(node, "tables"), f"{prefix}tables: {error}") from None


def _check_distinct(sources: tuple[DebeziumConnector, ...], reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError if two connectors have the same name, prefix, or topic of BEGIN and END."""
    for key, values in (
        ("topic", [connector.topic for connector in sources]),
        ("name", [connector.label for connector in sources]),
        ("prefix", [connector.begins for connector in sources if not connector.tables]),
    ):
        if repeated := sorted({value for value in values if values.count(value) > 1}):
            raise reader.fail(node, f"two of transactions.connectors have the {key} {repeated[0]!r}")


def check_parts(config: Config, reader: Reader, node: yaml.Node | None) -> Config:
    """Checks that the config's parts fit together, after the preset has expanded it.

    Returns:
        `config`, unchanged.

    Raises:
        UsageError: A check failed.
    """
    for name, topic in config.topics.items():
        if name.startswith("^"):
            try:
                compile_regex(name)
            except ValueError as error:
                raise reader.fail(find(node, "topics", name), f"topics: {error}") from None
        if topic.as_ and topic.as_.lower() == "records":
            topic_node = find(node, "topics", name)
            raise reader.fail(topic_node, f"topics.{name}.as: 'records' is the view of all topics: take another name")
    _check_formats(config, reader, node)
    owners = {"records": "the view of all topics", "raw": "the table raw", "staging": "the table staging"}
    for view, owner, path in [
        *((topic.as_ or name, f"topic {name!r}", ("topics", name)) for name, topic in config.topics.items()),
        *((name, f"lookup {name!r}", ("lookups", name)) for name in config.lookups),
    ]:
        other = owners.setdefault(view.lower(), owner)
        if other is not owner:
            msg = f"{owner} and {other} have the same view name {view!r}: say `as:` on one"
            raise reader.fail(find(node, *path), msg)
    _check_deliveries(config, reader, node)
    for key, error_text in catalog_errors(config):
        raise reader.fail(find(node, "deliver", "tables", "catalog", key), f"deliver.tables.catalog{error_text}")
    for name, lookup in config.lookups.items():
        _check_lookup(name, lookup, reader, find(node, "lookups", name))
    limit = config.limits.max_quarantined
    if not 0 <= limit < math.inf or (isinstance(limit, float) and limit > 1):
        text = "limits.max_quarantined must be 0 or more, or a share of at most 100%"
        raise reader.fail(find(node, "limits", "max_quarantined"), text)
    if config.limits.records_per_sync != "auto" and config.limits.records_per_sync < 1:
        text = "limits.records_per_sync must be auto, or 1 or more"
        raise reader.fail(find(node, "limits", "records_per_sync"), text)
    if not 0 <= config.transactions.remember <= _MAX_INT64:
        text = f"transactions.remember must be 0 or more, and {_MAX_INT64} at most"
        raise reader.fail(find(node, "transactions", "remember"), text)
    return config


def _check_formats(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    for name, topic in config.topics.items():
        topic_node = find(node, "topics", name)
        formats = set[str]()
        for part, key in _SCHEMA_FILES:
            format_, file = config.format(topic, part), topic.schema_file(part)
            if file and format_ != "avro":
                raise reader.fail(topic_node, f"topics.{name}.{key} needs {part}: avro")
            if file and (error_text := _text_error(file)):
                raise reader.fail(topic_node, f"the schema {file} of topic {name!r} {error_text}")
            formats |= set() if file else {format_}
        if topic.schema and config.format(topic, "value") in ("string", "bytes"):
            text = f"topics.{name}.schema is for values with fields, not {topic.value or 'these'}"
            raise reader.fail(topic_node, text)
        if config.registry is None and (framed := sorted(formats & {"avro", "protobuf", "json-schema"})):
            text = f"topic {name!r} is {framed[0]}, which needs a schema registry: say registry.url"
            raise reader.fail(topic_node, text)
    _check_registry(config.registry, reader, find(node, "registry"), "registry")
    registry_node = find(node, "deliver", "kafka", "registry")
    _check_registry(config.kafka_delivery.registry, reader, registry_node, "deliver.kafka.registry")
    formats = {config.delivered_format(rule.topic, part) for rule in config.outputs for part in ("key", "value")}
    if config.delivered_registry is None and (framed := sorted(formats - {"json"})):
        text = f"deliver.kafka: {framed[0]} needs a schema registry: say registry.url"
        raise reader.fail(find(node, "deliver", "kafka"), text)


def _check_registry(access: RegistryAccess | None, reader: Reader, node: yaml.Node | None, key: str) -> None:
    if access is None:
        return
    if not access.url.startswith(("http://", "https://")):
        raise reader.fail(find(node, "url"), f"{key}.url must begin with http:// or https://")
    for path in (access.ca, access.certificate, access.certificate_key):
        if path and (error_text := _file_error(path)):
            raise reader.fail(node, f"{key}: the file {path} {error_text}")
    if not access.timeout:
        raise reader.fail(find(node, "timeout"), f"{key}.timeout must be more than nothing")
    if "@" in access.url:  # errors show the URL
        raise reader.fail(find(node, "url"), f"{key}.url must have no user or password in it: say {key}.basic_auth")


def check_fence(reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError for the first key of `storage` that gives the conditional put away."""
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key.value, str) and _OTHER_FENCE.search(key.value):
            text = f"storage.{key.value} is not for zync: {storage.FENCE}. Take it out"
            raise reader.fail(key, text)


def check_storage(config: Config, reader: Reader, node: yaml.Node | None, lake: str | None) -> None:
    """Raises UsageError if a key of `storage` is empty, or needs another, or if the lake is no object store."""
    settings, storage_node = config.storage, find(node, "storage")
    if storage_node is node:
        return
    for key in (field.name for field in fields(Storage) if field.name not in ("path_style", "options")):
        if (key_node := find(storage_node, key)) is not storage_node and not getattr(settings, key):
            raise reader.fail(key_node, f"storage.{key} is empty: name it, or take the key out")
    if settings.endpoint and not re.match("https?://[^@]*$", settings.endpoint):
        text = "storage.endpoint must begin with http:// or https://, and have no user or password"
        raise reader.fail(find(storage_node, "endpoint"), text)
    for key, needed in (
        ("access_key_id", "secret_access_key"),
        ("secret_access_key", "access_key_id"),
        ("session_token", "access_key_id"),
        ("tenant_id", "client_id"),
        ("client_secret", "client_id"),
        ("client_secret", "tenant_id"),
    ):
        if getattr(settings, key) and not getattr(settings, needed):
            raise reader.fail(find(storage_node, key), f"storage.{key} needs storage.{needed}")
    if settings.path_style is not None and not settings.endpoint:
        raise reader.fail(find(storage_node, "path_style"), "storage.path_style needs storage.endpoint")
    if settings != Storage() and lake is None and is_local(locate(config.lake, "")):
        text = f"storage is for a lake in an object store, and lake is {config.lake}: take one of them out"
        raise reader.fail(storage_node, text)


def check_rules(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError for the first rule whose file cannot be read."""
    outputs = find(node, "outputs")
    for number, rule in enumerate(config.outputs):
        output_node = outputs.value[number] if isinstance(outputs, yaml.SequenceNode) else outputs
        if (rule.sql is None) == (rule.python is None):
            raise reader.fail(output_node, f"the output to {rule.topic!r} needs one of sql and python")
        if error_text := _text_error(rule.file):
            raise reader.fail(output_node, f"the rule {rule.file} of output {rule.topic!r} {error_text}")
        if error_text := _modules_error(rule):
            raise reader.fail(output_node, f"the rule {rule.name} of output {rule.topic!r} imports {error_text}")


def _modules_error(rule: OutputRule) -> str | None:
    """Returns what is wrong with the modules beside a rule, as the end of a sentence; None if nothing is."""
    try:
        modules = rule.modules
    except OSError as error:
        return f"{error.filename}, which cannot be read: {error.strerror}"
    for name in module_names(modules):
        if twin := installed_twin(name, modules):
            return (
                f"{name}, which is beside it and also in {twin}: which of the two is imported would differ from "
                "process to process. Give the one beside it another name"
            )
    return None


def _check_deliveries(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    delivery = config.kafka_delivery
    outputs = [rule.topic for rule in config.outputs]
    if delivery.transaction_topic in outputs:
        text = f"deliver.kafka.transaction_topic: {delivery.transaction_topic!r} is an output: name another"
        raise reader.fail(find(node, "deliver", "kafka", "transaction_topic"), text)
    delivered = outputs + ([delivery.transaction_topic] if delivery.transaction_topic else [])
    owners: dict[str, str] = {delivery.progress_topic: "progress_topic"}
    for output in dict.fromkeys(delivered):
        other = owners.setdefault(delivery.target(output), output)
        if other != output:
            raise reader.fail(
                find(node, "deliver", "kafka"), f"{other} and {output} would both go to topic {delivery.target(output)}"
            )
    named: list[tuple[str | None, tuple[str, ...]]] = [
        (delivery.progress_topic, ("progress_topic",)),
        (delivery.transaction_topic, ("transaction_topic",)),
        *((topic.as_, ("topics", output, "as")) for output, topic in delivery.topics.items()),
    ]
    for name, key in named:
        if name is not None and not _TOPIC.fullmatch(name):
            key_node = find(node, "deliver", "kafka", *key)
            text = "a topic of Kafka has up to 249 of a-z, A-Z, 0-9, '.', '_' and '-' for a name"
            raise reader.fail(key_node, f"deliver.kafka.{'.'.join(key)}: {text}, not {name!r}")
        if name in KAFKAS_OWN:
            key_node = find(node, "deliver", "kafka", *key)
            raise reader.fail(
                key_node, f"deliver.kafka.{'.'.join(key)}: {name!r} is a topic of Kafka's own: name another"
            )
    for output, path in (
        *((name, ("deliver", "kafka", "topics")) for name in delivery.topics),
        *((name, ("deliver", "tables")) for name in config.deliver.tables or ()),
    ):
        if config.outputs and output not in delivered:
            matches = difflib.get_close_matches(output, delivered, n=1)
            hint = f"did you mean {matches[0]!r}?" if matches else f"outputs are {', '.join(delivered)}"
            hint = "a catalog needs its type: hive or glue" if path[1] == "tables" and output == "catalog" else hint
            raise reader.fail(find(node, *path, output), f"no output {output!r}: {hint}")
    for output, topic in delivery.topics.items():
        if not all(1 <= count <= _MAX_INT32 for count in (topic.partitions, topic.replication) if count is not None):
            topic_node = find(node, "deliver", "kafka", "topics", output)
            text = f"partitions and replication must be 1 or more (and {_MAX_INT32:,} at most)"
            raise reader.fail(topic_node, f"deliver.kafka.topics.{output}: {text}")
    _check_tables(config, reader, node)
    _check_table_properties(config, reader, node)


def _check_tables(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError for the first delivered table that cannot be laid out, or shown, as the config says."""
    for output, table in (config.deliver.tables or {}).items():
        if table.partition_by and table.cluster_by:
            text = f"deliver.tables.{output}: Delta has partition_by or cluster_by, not both: say one"
            raise reader.fail(find(node, "deliver", "tables", output), text)
        if table.iceberg and (store := storage.store(config.lake)) in ("gs", "azure"):
            cloud = {"gs": "Google Cloud Storage", "azure": "Azure"}[store]
            text = f"deliver.tables.{output}.iceberg: zync writes no metadata of Iceberg in {cloud}: take it out"
            raise reader.fail(find(node, "deliver", "tables", output, "iceberg"), text)


def _check_table_properties(config: Config, reader: Reader, node: yaml.Node | None) -> None:
    """Raises UsageError for the first table property that zync does not set, or that would stop a delivery."""
    of_all: tuple[str, ...] = ("deliver", "table_properties")
    of_one: dict[str, tuple[str, ...]] = {
        output: ("deliver", "tables", output, "properties") for output in config.deliver.tables or ()
    }
    properties = {of_all: config.deliver.table_properties}
    properties |= {of_one[output]: table.properties for output, table in (config.deliver.tables or {}).items()}
    for path, pairs in properties.items():
        for name, value in pairs.items():
            if error_text := property_error(name, value):
                raise reader.fail(find(node, *path, name), f"{'.'.join(path)}: {name} {error_text}")
    for rule in config.outputs:
        table = config.deliver.table(rule.topic)
        apply = table.apply or ("upsert" if rule.key else "append")
        if table.properties.get(APPEND_ONLY) == "true" and apply != "append":
            path = of_one.get(rule.topic, of_all)
            path = path if APPEND_ONLY in properties[path] else of_all
            text = f"{APPEND_ONLY} is for tables with apply: append, and {rule.topic} has {apply}: take it out"
            raise reader.fail(find(node, *path, APPEND_ONLY), f"{'.'.join(path)}: {text}")


def _check_lookup(name: str, lookup: Lookup, reader: Reader, node: yaml.Node | None) -> None:
    kinds = [kind for kind in ("csv", "json", "delta") if getattr(lookup, kind) is not None]
    if len(kinds) != 1:
        raise reader.fail(node, f"lookup {name!r} needs exactly one of csv, json and delta")
    path = lookup.csv or lookup.json
    if path and (error_text := _file_error(path)):
        raise reader.fail(node, f"the {kinds[0]} file {path} of lookup {name!r} {error_text}")
