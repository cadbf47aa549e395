"""Which of the config's topics a record is of: names first, then regexes; and expressions that say so."""

import re
from collections.abc import Collection

from zync.config.model import RESERVED_TOPIC, Config
from zync.sql import literal


def compile_regex(text: str) -> re.Pattern[str]:
    """The ^regex of a topic, compiled.

    Raises:
        ValueError: it is no regular expression, or one that Python cannot compile; says why.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:  # of a{99999999999}, and of thousands of parentheses
        msg = f"{text!r} is not a regular expression: {error}"
        raise ValueError(msg) from None


def ordered(config: Config) -> list[str]:
    """The config's topics in the order in which they claim records: names first, then regexes."""
    return sorted(config.topics, key=lambda topic: topic.startswith("^"))


def matches(topic: str) -> str:
    """Whether the column `topic` is that topic, a name or ^regex."""
    return f"topic RLIKE {literal(topic)}" if topic.startswith("^") else f"topic = {literal(topic)}"


RESERVED = f"topic = {literal(RESERVED_TOPIC)}"
"""Whether the column `topic` is the one of operators' decisions."""


def configured(config: Config) -> str:
    """Whether the column `topic` is one that the config names."""
    return " OR ".join(matches(topic) for topic in config.topics) or "false"


def claimed_by(config: Config, topics: Collection[str]) -> str:
    """Whether those of the config's topics claim the record: another may name its topic before a regex finds it."""
    return by_topic(config, {topic: str(topic in topics).lower() for topic in config.topics}, "false")


def by_topic(config: Config, expressions: dict[str, str], reserved: str = "NULL") -> str:
    """One expression that is each topic's own where that topic's records are; `reserved` for zync's own topic."""
    cases = " ".join(f"WHEN {matches(topic)} THEN {expressions[topic]}" for topic in ordered(config))
    return f"CASE WHEN {RESERVED} THEN {reserved} {cases} END"
