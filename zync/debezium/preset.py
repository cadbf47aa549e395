"""Expands the config by what the preset implies: its topics, their ids, and the tables that rules name."""

import re
from dataclasses import replace

from zync.config.model import Config, DebeziumConnector, Topic, Transactions
from zync.config.topic_names import is_topic
from zync.debezium.envelope import transaction_id


def connector_of(transactions: Transactions, topic: str) -> DebeziumConnector | None:
    """Returns the connector that a topic belongs to by the config, or None.

    The topic of BEGIN and END and the tables listed for a connector come first, then the longest prefix: `shop` and
    `shop.eu` may both be connectors.

    Args:
        transactions: The config's `transactions`.
        topic: A topic's name or a ^regex.
    """
    for connector in transactions.sources:
        if topic == connector.topic or topic in connector.tables:
            return connector
    for connector in transactions.sources:
        if any(is_topic(topic, table) for table in connector.tables):
            return connector
    by_prefix = [
        connector
        for connector in transactions.sources
        if not connector.tables
        and topic.startswith((connector.begins, f"^{re.escape(connector.begins.removesuffix(connector.delimiter))}"))
    ]
    return max(by_prefix, key=lambda connector: len(connector.begins), default=None)


def covers(transactions: Transactions, topic: str) -> bool:
    """Whether the preset knows where the records of a topic (a name or ^regex) have their transaction id."""
    return connector_of(transactions, topic) is not None


def expand(config: Config) -> Config:
    """Returns the config with everything that the preset implies: its topics, their ids, the tables that rules name.

    What the config says itself of a connector's topic (formats, schema, the name of the view) stays.
    """
    transactions = config.transactions
    if transactions.preset != "debezium":
        return config
    several = len(transactions.sources) > 1
    ids = {
        connector: transaction_id(connector.topic, connector.label if several else "")
        for connector in transactions.sources
    }
    named = {
        name: Topic() for name in _names(config) if name not in transactions.end_topics and covers(transactions, name)
    }
    topics = {}
    for name, topic in {**named, **config.topics}.items():
        connector = connector_of(transactions, name)
        if connector is None or topic.id:
            topics[name] = topic
        elif name not in transactions.end_topics:
            topics[name] = replace(topic, id=ids[connector], null_id="single", envelope=True)
    for connector in transactions.sources:
        end_topic = config.topics.get(connector.topic, Topic())
        topics.pop(connector.topic, None)
        topics[connector.topic] = replace(end_topic, id=ids[connector], null_id="single")
    for connector in transactions.sources:
        for table in connector.tables:
            topics.setdefault(table, Topic(id=ids[connector], null_id="single", envelope=True))
    # Longest prefix first: a topic belongs to the first regex that matches it.
    for connector in sorted(transactions.sources, key=lambda connector: -len(connector.begins)):
        if not connector.tables:
            by_prefix = Topic(id=ids[connector], null_id="single", envelope=True)
            topics.setdefault(f"^{re.escape(connector.begins)}", by_prefix)
    return replace(config, topics=topics)


def _names(config: Config) -> list[str]:
    """Returns the names in backticks in the rules' texts: they may be topics that the config does not name."""
    texts = [rule.text for rule in config.outputs if rule.sql]
    return list(dict.fromkeys(name for text in texts for name in sorted({*re.findall(r"`([^`]+)`", text)})))
