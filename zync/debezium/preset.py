"""The config that the preset implies: its topics, where their ids are, and the tables that rules name."""

import re
from dataclasses import replace

from zync.config.model import Config, DebeziumConnector, Topic, Transactions
from zync.debezium.envelope import transaction_id


def connector_of(transactions: Transactions, topic: str) -> DebeziumConnector | None:
    """The connector whose records a topic (a name or ^regex) has, by the config; None where it is no connector's.

    Its topic of BEGIN and END and the tables named for it come first, then the longest prefix: `shop` and `shop.eu` may
    both be connectors.
    """
    for connector in transactions.sources:
        if topic == connector.topic or topic in connector.tables:
            return connector
    for connector in transactions.sources:
        if any(re.search(table, topic) for table in connector.tables if table.startswith("^")):
            return connector
    by_prefix = [
        one
        for one in transactions.sources
        if not one.tables and topic.startswith((one.begins, f"^{re.escape(one.begins.removesuffix(one.delimiter))}"))
    ]
    return max(by_prefix, key=lambda one: len(one.begins), default=None)


def covers(transactions: Transactions, topic: str) -> bool:
    """Whether the preset knows where records of that topic (a name or ^regex) say which transaction they belong to."""
    return connector_of(transactions, topic) is not None


def expand(config: Config) -> Config:
    """`config` with all that the preset implies: its topics, where their ids are, and the tables that rules name.

    What the config says of a topic of the connector's (its formats, its schema, the name of its view) stays.
    """
    said = config.transactions
    if said.preset != "debezium":
        return config
    several = len(said.sources) > 1
    ids = {one: transaction_id(one.topic, one.label if several else "") for one in said.sources}
    named = {name: Topic() for name in _names(config) if name not in said.end_topics and covers(said, name)}
    topics = {}
    for name, topic in {**named, **config.topics}.items():
        connector = connector_of(said, name)
        if connector is None or topic.id:
            topics[name] = topic
        elif name not in said.end_topics:
            topics[name] = replace(topic, id=ids[connector], null_id="single", envelope=True)
    for connector in said.sources:
        own = config.topics.get(connector.topic, Topic())
        topics.pop(connector.topic, None)
        topics[connector.topic] = replace(own, id=ids[connector], null_id="single")
    for connector in said.sources:
        for table in connector.tables:
            topics.setdefault(table, Topic(id=ids[connector], null_id="single", envelope=True))
    for connector in sorted(said.sources, key=lambda one: -len(one.begins)):  # the first regex that matches has a topic
        if not connector.tables:
            own = Topic(id=ids[connector], null_id="single", envelope=True)
            topics.setdefault(f"^{re.escape(connector.begins)}", own)
    return replace(config, topics=topics)


def _names(config: Config) -> list[str]:
    """Names in backticks in the rules' texts: those of views may be topics that the config does not name."""
    texts = [rule.text for rule in config.outputs if rule.sql]
    return list(dict.fromkeys(name for text in texts for name in sorted({*re.findall(r"`([^`]+)`", text)})))
