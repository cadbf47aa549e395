"""`zync doctor`: reads a connector's config and Kafka's topics, and has them checked."""

from dataclasses import dataclass
from pathlib import Path

from zync.config.model import Config
from zync.kafka.admin import Brokers
from zync.operate import connector_config
from zync.operate.doctor import Finding, Topics, TopicSettings, diagnose, read_topics


@dataclass(frozen=True)
class Diagnosis:
    """What was looked at, and what will hurt.

    Attributes:
        findings: the findings, the most severe first.
        subjects: names of what was looked at: the connector's config, the topics.
    """

    findings: list[Finding]
    subjects: tuple[str, ...]


def examine(
    config: Config, connect: str | None = None, connector: str | None = None, connector_file: Path | None = None
) -> Diagnosis:
    """Checks the config of a connector, if one is named, and the topics that the config reads, if it names Kafka.

    Args:
        config: the config.
        connect: the URL of Kafka Connect's REST API, for `connector`.
        connector: the name of the connector there.
        connector_file: a file with the connector's config instead.

    Raises:
        ZyncError: Kafka or Kafka Connect does not answer.
        UsageError: Kafka Connect has no such connector, or the file has no connector's config.
    """
    settings = connector_config.from_file(connector_file) if connector_file else None
    if connect and connector:
        settings = connector_config.from_connect(connect, connector)
    topics = _topics(config) if config.kafka.get("bootstrap.servers") else None
    looked_at = {"the connector's config": settings, "the topics": topics}
    subjects = tuple(subject for subject, values in looked_at.items() if values is not None)
    return Diagnosis(diagnose(settings, topics, config), subjects)


def _topics(config: Config) -> Topics:
    """Returns the settings of the topics that the config reads."""
    brokers = Brokers(config.kafka)
    partitions = brokers.topics()
    names = read_topics(config, partitions)
    properties = brokers.topic_properties(names)
    return {name: TopicSettings(partitions[name], properties.get(name, {})) for name in names}
