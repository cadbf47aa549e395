"""What `zync check` says of a config beside its Kafka, its raw and its own names: warnings, and without Spark."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from zync.config.model import Config, Topic
from zync.config.topics import compile_regex
from zync.errors import ZyncError
from zync.kafka.admin import Brokers, RefusedError
from zync.lake.files import data_files, dataset
from zync.lake.paths import locate
from zync.lake.table import open_table
from zync.raw.table import RAW_SCHEMA
from zync.text import amount, listed

_SAMPLE = 1000
"""So many records are looked at, of each of raw's newest files."""
_FILES = 3

_TEXT = r"""(?:'([^']*)'|"([^"]*)")"""
_NAMED = (
    re.compile(rf"(?i)(?<![:.\w])topic\s*(?:<=>|==?|<>|!=)\s*{_TEXT}"),
    re.compile(rf"(?i){_TEXT}\s*(?:<=>|==?|<>|!=)\s*topic(?![:.\w])"),
)
_IN = re.compile(r"(?i)(?<![:.\w])topic\s+(?:not\s+)?in\s*\(([^()]*)\)")
_PATH = re.compile(r"""\s*(key|value)\s*:((?:\.?[A-Za-z_]\w*|\['[^']*'\]|\["[^"]*"\]|\[\d+\])+)\s*(?:::\s*\w+\s*)?""")
"""An expression that is nothing but a path into JSON, cast or not: others may find an id in another place."""
_STEP = re.compile(r"""\.?([A-Za-z_]\w*)|\['([^']*)'\]|\["([^"]*)"\]|\[(\d+)\]""")


def warnings(config: Config) -> list[str]:
    """All that can be known: of topics that Kafka does not have, of names in `done`, of ids that no record has."""
    found = [*_missing_topics(config), *_names_in_done(config), *_ids_that_no_record_has(config)]
    return [config.as_written(one) for one in found]


def _missing_topics(config: Config) -> Iterator[str]:
    """Topics that Kafka does not have; none where no Kafka is named, or none answers within a second."""
    if not config.kafka.get("bootstrap.servers"):
        return
    try:
        brokers = Brokers(config.kafka)
        there = brokers.topics(patient=False)
    except RefusedError as error:
        yield str(error)
        return
    except ZyncError:
        return
    for name in config.topics:
        if name.startswith("^"):
            if not any(map(compile_regex(name).search, there)):
                yield f"topics: Kafka at {brokers.servers} has no topic that {name} finds"
        elif name not in there:
            known = listed(sorted(there), 10) or "none"
            ends = "`zync sync-from` ends on that" if name in config.sources else "its view is empty until it comes"
            yield f"topics: Kafka at {brokers.servers} has no topic {name!r} (it has {known}): {ends}"


def _names_in_done(config: Config) -> Iterator[str]:
    """Names that `done` compares `topic` with, and that no topic has."""
    text = config.transactions.done
    named = [one or other for pattern in _NAMED for one, other in pattern.findall(text)]
    named += [one or other for inside in _IN.findall(text) for one, other in re.findall(_TEXT, inside)]
    views = {one.as_: name for name, one in config.topics.items() if one.as_}
    for name in dict.fromkeys(named):
        if any(compile_regex(one).search(name) if one.startswith("^") else one == name for one in config.topics):
            continue
        if name in views:
            yield (
                f"done compares topic with {name!r}, which is the name of a view: the topic is {views[name]!r}, so "
                "that this never holds"
            )
        else:
            yield f"done compares topic with {name!r}, which is no topic of the config, so that this never holds"


def _ids_that_no_record_has(config: Config) -> Iterator[str]:
    """Ids that are a path into JSON which none of raw's newest records has."""
    paths = {name: match for name, one in config.topics.items() if (match := _plain_path(one, config))}
    if not paths:
        return
    samples = _sampled(config)
    for name, match in paths.items():
        part = match[1]
        regex = compile_regex(name) if name.startswith("^") else None
        mine = [
            value
            for topic, records in samples.items()
            if (regex.search(topic) and topic not in config.topics if regex else topic == name)
            for value in (_parsed(record[part]) for record in records)
            if isinstance(value, dict)
        ]
        if mine and all(_at(value, match[2]) is None for value in mine):
            fields = listed(sorted({str(key) for value in mine for key in value}), 10) or "none"
            yield (
                f"topics.{name}.id: none of the newest {amount(len(mine), 'record')} in raw has {part}:{match[2]} "
                f"(their fields are {fields}), so that each is {_WITHOUT_ID[config.topics[name].null_id]}"
            )


_WITHOUT_ID = {"single": "a transaction by itself", "quarantine": "set aside"}


def _plain_path(topic: Topic, config: Config) -> re.Match[str] | None:
    match = _PATH.fullmatch(topic.id)
    if match is None or topic.envelope or topic.compression != "none":
        return None
    return match if config.format(topic, "key" if match[1] == "key" else "value") == "json" else None


def _sampled(config: Config) -> Mapping[str, list[dict[str, Any]]]:
    """Keys and values of some of raw's newest records, by topic; none where there is no raw."""
    try:
        table = open_table(locate("raw", config.lake))
        found: dict[str, list[dict[str, Any]]] = {}
        if table is None:
            return found
        for file in data_files(table, "seqno")[-_FILES:]:
            rows = dataset(table, [file.path], RAW_SCHEMA).head(_SAMPLE, columns=["kafka", "key", "value"])
            for row in rows.to_pylist():
                found.setdefault(row["kafka"]["topic"], []).append(row)
    except (ZyncError, OSError):  # what cannot be read is for `verify` to tell
        return {}
    return found


def _parsed(text: bytes | None) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _at(value: Any, path: str) -> Any:
    """What is there in the JSON value, as a path of Spark's finds it: names in their case, items by number."""
    for name, quoted, double, number in _STEP.findall(path):
        if number:
            value = value[int(number)] if isinstance(value, list) and int(number) < len(value) else None
        else:
            value = value.get(name or quoted or double) if isinstance(value, dict) else None
    return value
