"""Assigns records to the config's topics, names before regexes, as SQL expressions over the column `topic`."""

from collections.abc import Collection

from zync.config.model import RESERVED_TOPIC, Config
from zync.config.topic_names import is_topic
from zync.sql import literal


def ordered(config: Config) -> list[str]:
    """Returns the config's topics in the order in which they claim records: names first, then regexes."""
    return sorted(config.topics, key=lambda topic: topic.startswith("^"))


def claiming(config: Config, topic: str) -> str | None:
    """Returns the config's topic, a name or ^regex, that claims the records of a topic of Kafka; None if none does."""
    return next((pattern for pattern in ordered(config) if is_topic(topic, pattern)), None)


def matches(topic: str) -> str:
    """Returns a SQL condition: the column `topic` is this name or matches this ^regex."""
    return f"topic RLIKE {literal(topic)}" if topic.startswith("^") else f"topic = {literal(topic)}"


RESERVED = f"topic = {literal(RESERVED_TOPIC)}"
"""A SQL condition: the column `topic` is that of operators' decisions."""


def configured(config: Config) -> str:
    """Returns a SQL condition: the config has the column `topic`, by name or ^regex."""
    return " OR ".join(matches(topic) for topic in config.topics) or "false"


def claimed_by(config: Config, topics: Collection[str]) -> str:
    """Returns a SQL condition: some of these topics of the config claim the record, which names do before regexes."""
    return by_topic(config, {topic: str(topic in topics).lower() for topic in config.topics}, "false")


def by_topic(config: Config, expressions: dict[str, str], reserved: str = "NULL") -> str:
    """Returns a SQL CASE with an expression for each topic's records.

    Args:
        config: The config.
        expressions: The SQL expression of each of its topics.
        reserved: The SQL expression of zync's own topic.
    """
    cases = " ".join(f"WHEN {matches(topic)} THEN {expressions[topic]}" for topic in ordered(config))
    return f"CASE WHEN {RESERVED} THEN {reserved} {cases} END"
