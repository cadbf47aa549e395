"""Warnings of `zync check` that compare a config with its Kafka, its raw and the names in it. No Spark."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zync.config.model import Config, Topic
from zync.config.topic_names import is_topic
from zync.errors import FormatError, ZyncError
from zync.kafka.admin import Brokers, RefusedError
from zync.lake.files import data_files, dataset
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.operate.doctor import effect_of_missing
from zync.raw.table import RAW_SCHEMA
from zync.text import amount, json_object, listed

_SAMPLE_FILES = 3
"""Number of raw's newest files that are sampled."""
_SAMPLE_RECORDS = 1000
"""Number of records that are sampled from each of them."""

_STRING = r"""(?:'([^']*)'|"([^"]*)")"""
_COMPARISONS = (
    re.compile(rf"(?i)(?<![:.\w])topic\s*(?:<=>|==?|<>|!=)\s*{_STRING}"),
    re.compile(rf"(?i){_STRING}\s*(?:<=>|==?|<>|!=)\s*topic(?![:.\w])"),
)
"""Comparisons of `topic` with a string literal, on either side."""
_IN = re.compile(r"(?i)(?<![:.\w])topic\s+(?:not\s+)?in\s*\(([^()]*)\)")
_PATH = re.compile(r"""\s*(key|value)\s*:((?:\.?[A-Za-z_]\w*|\['[^']*'\]|\["[^"]*"\]|\[\d+\])+)\s*(?:::\s*\w+\s*)?""")
"""An expression that is only a path into JSON, cast or not. Any other expression may compute an id without the path."""
_STEP = re.compile(r"""\.?([A-Za-z_]\w*)|\['([^']*)'\]|\["([^"]*)"\]|\[(\d+)\]""")


def warnings(config: Config) -> list[str]:
    """Returns warnings of topics missing in Kafka, of unknown topics in `done`, and of ids that no record has."""
    texts = [*_missing_topics(config), *_unknown_topics_in_done(config), *_ids_without_records(config)]
    return [config.as_written(text) for text in texts]


def _missing_topics(config: Config) -> Iterator[str]:
    """Warns of topics that Kafka does not have. Yields nothing if no broker is named, or none answers in a second."""
    if not config.kafka.get("bootstrap.servers"):
        return
    try:
        brokers = Brokers(config.kafka)
        kafka_topics = brokers.topics(patient=False)
    except RefusedError as error:
        yield str(error)
        return
    except ZyncError:
        return
    for name in config.topics:
        if name.startswith("^"):
            if not any(is_topic(topic, name) for topic in kafka_topics):
                yield f"topics: Kafka at {brokers.servers} has no topic that {name} finds"
        elif name not in kafka_topics:
            known = listed(sorted(kafka_topics), 10) or "none"
            effect = effect_of_missing(name, config)
            yield f"topics: Kafka at {brokers.servers} has no topic {name!r} (it has {known}): {effect}"


def _unknown_topics_in_done(config: Config) -> Iterator[str]:
    """Warns of names that `done` compares `topic` with, and that are not topics of the config."""
    text = config.transactions.done
    names = [single or double for pattern in _COMPARISONS for single, double in pattern.findall(text)]
    names += [single or double for items in _IN.findall(text) for single, double in re.findall(_STRING, items)]
    topics_by_view = {topic.as_: name for name, topic in config.topics.items() if topic.as_}
    for name in dict.fromkeys(names):
        if any(is_topic(name, topic) for topic in config.topics):
            continue
        if name in topics_by_view:
            yield (
                f"done compares topic with {name!r}, which is the name of a view: the topic is "
                f"{topics_by_view[name]!r}, so that this never holds"
            )
        else:
            yield f"done compares topic with {name!r}, which is no topic of the config, so that this never holds"


def _ids_without_records(config: Config) -> Iterator[str]:
    """Warns of ids that are a path into JSON which none of raw's newest records has."""
    paths = {name: match for name, topic in config.topics.items() if (match := _id_path(topic, config))}
    if not paths:
        return
    samples = _sample_records(config)
    for name, match in paths.items():
        part, path = match[1], match[2]
        objects = [
            value
            for topic, records in samples.items()
            if topic == name or (topic not in config.topics and is_topic(topic, name))
            for record in records
            if (value := json_object(record[part])) is not None
        ]
        if objects and all(_value_at(value, path) is None for value in objects):
            fields = listed(sorted({str(field) for value in objects for field in value}), 10) or "none"
            yield (
                f"topics.{name}.id: none of the newest {amount(len(objects), 'record')} in raw has {part}:{path} "
                f"(their fields are {fields}), so that each is {_NULL_ID_EFFECTS[config.topics[name].null_id]}"
            )


_NULL_ID_EFFECTS = {"single": "a transaction by itself", "quarantine": "set aside"}


def _id_path(topic: Topic, config: Config) -> re.Match[str] | None:
    """Returns the topic's id as a match of `_PATH`; None if it is no such path, or not into plain JSON."""
    match = _PATH.fullmatch(topic.id)
    if match is None or topic.envelope or topic.compression != "none":
        return None
    return match if config.format(topic, "key" if match[1] == "key" else "value") == "json" else None


def _sample_records(config: Config) -> Mapping[str, list[dict[str, Any]]]:
    """Returns keys and values of records in raw's newest files by topic; none if raw does not exist."""
    try:
        table = open_table(locate("raw", config.lake))
        samples: dict[str, list[dict[str, Any]]] = {}
        if table is None:
            return samples
        for file in data_files(table, "seqno")[-_SAMPLE_FILES:]:
            rows = dataset(table, [file], RAW_SCHEMA).head(_SAMPLE_RECORDS, columns=["kafka", "key", "value"])
            for row in rows.to_pylist():
                samples.setdefault(row["kafka"]["topic"], []).append(row)
    except FormatError:
        raise
    except (ZyncError, OSError):  # `zync verify` reports files that cannot be read
        return {}
    return samples


def _value_at(value: Any, path: str) -> Any:
    """Returns the JSON value at a path, or None, by Spark's rules: fields are case-sensitive, items by index."""
    for name, single_quoted, double_quoted, index in _STEP.findall(path):
        if index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            value = value.get(name or single_quoted or double_quoted) if isinstance(value, dict) else None
    return value
