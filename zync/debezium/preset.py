"""The config that the preset implies: its topics, where their ids are, and the tables that rules name."""

import re
from dataclasses import replace

from zync.config.model import Config, Topic, Transactions
from zync.debezium.envelope import transaction_id


def covers(said: Transactions, topic: str) -> bool:
    """Whether the preset says all that is to say of that topic (a name or ^regex)."""
    prefix = str(said.topic).removesuffix(".transaction")
    return said.preset is not None and topic.startswith((f"{prefix}.", f"^{re.escape(prefix)}"))


def expand(config: Config) -> Config:
    """`config` with all that the preset implies: its topics, where their ids are, and the tables that rules name."""
    if config.transactions.preset != "debezium":
        return config
    topic = str(config.transactions.topic)
    prefix = topic.removesuffix(".transaction")
    ours = Topic(id=transaction_id(topic), null_id="single")
    named = {
        name: Topic()
        for rule in config.outputs
        if rule.sql
        for name in _names(rule.text, f"{prefix}.")
        if name != topic
    }
    topics = {}
    for name, one in {**named, **config.topics}.items():
        if one.id or not covers(config.transactions, name):
            topics[name] = one
        else:
            topics[name] = replace(ours, schema=one.schema, as_=one.as_, envelope=True)
    topics[topic] = ours
    topics.setdefault(f"^{re.escape(prefix)}\\.", replace(ours, envelope=True))
    return replace(config, topics=topics)


def _names(text: str, prefix: str) -> list[str]:
    """The topics under the prefix whose views a rule's text names."""
    return sorted({name for name in re.findall(r"`([^`]+)`", text) if name.startswith(prefix)})
