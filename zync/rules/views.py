"""Creates the views that rules read: `records`, and a view for each topic."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import DataFrame

from zync.config.model import Config
from zync.config.topics import matches, ordered
from zync.debezium.envelope import BODY, VIEW, typed, with_documents
from zync.debezium.unavailable import CLEAN, has_envelopes
from zync.spark.frames import select
from zync.sql import name

VIEW_COLUMNS = ("seqno", "txn", "record_seqno", "topic", "kafka", "key", "value", "headers")


def bind_views(
    records: DataFrame,
    config: Config,
    texts: Sequence[str] | None,
    guards: Mapping[str, str] = MappingProxyType({}),
    *,
    documents: bool = True,
) -> None:
    """Creates the temporary view `records`, and a view for each topic.

    Args:
        records: The records, with VIEW_COLUMNS and a struct for each topic with a schema.
        config: The config with the topics.
        texts: The statements that will read the views; views that none of them names are not created, as each takes
            time. None: create all.
        guards: Conditions by view, in lower case, that are true for each record of the view or raise an error.
        documents: Whether some records may be MongoDB documents.
    """
    envelope = {}
    if has_envelopes(config):
        records = select(records, "*", f"coalesce({CLEAN}, {BODY}) AS body")
        envelope = with_documents(VIEW) if documents else VIEW
    if _may_name(texts, name("records")):
        columns = [*VIEW_COLUMNS, *(f"{text} AS {column}" for column, text in envelope.items())]
        _guarded(select(records, *columns), "records", guards).createOrReplaceTempView("records")
    claimed: list[str] = []
    for topic_name in ordered(config):
        topic = config.topics[topic_name]
        is_of_topic = matches(topic_name)
        earlier = claimed if topic_name.startswith("^") else []
        where = " AND ".join([is_of_topic, *(f"NOT ({condition})" for condition in earlier)])
        claimed.append(is_of_topic)
        view = name(topic.as_ or topic_name)
        if not _may_name(texts, view):
            continue
        value = name(f"as_{list(config.topics).index(topic_name)}") if topic.schema else "value"
        if topic.envelope:
            # zync itself turns a TRUNCATE (op t) into output rows. A null op means that the record is no envelope.
            where = f"{where} AND {envelope['op']} <> 't'"
            envelope_columns = envelope | (typed(value) if topic.schema else {})
            columns = [*VIEW_COLUMNS, *(f"{text} AS {column}" for column, text in envelope_columns.items())]
        else:
            columns = [f"{value} AS value" if column == "value" else column for column in VIEW_COLUMNS]
        view_rows = select(records.where(where), *columns)
        _guarded(view_rows, topic.as_ or topic_name, guards).createOrReplaceTempView(view)


def _guarded(rows: DataFrame, view: str, guards: Mapping[str, str]) -> DataFrame:
    return rows.where(guards[view.lower()]) if view.lower() in guards else rows


def _may_name(texts: Sequence[str] | None, view: str) -> bool:
    """Whether a statement may name that view; a statement with IDENTIFIER, which builds names, may name any."""
    view_name = view[1:-1].lower()
    return texts is None or any(view_name in text.lower() or "identifier" in text.lower() for text in texts)
