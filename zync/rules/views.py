"""The views that rules see: `records`, and one for each topic."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from zync.config.model import Config
from zync.config.topics import matches, ordered
from zync.debezium.envelope import VIEW, typed, with_documents
from zync.spark.frames import select
from zync.sql import name
from zync.transactions.envelopes import with_body

VIEW_COLUMNS = ("seqno", "txn", "record_seqno", "topic", "kafka", "key", "value", "headers")


def bind_views(records: DataFrame, config: Config, texts: Sequence[str] | None, *, documents: bool = True) -> None:
    """Makes `records` and a view for each topic of what `records` (VIEW_COLUMNS and schema structs) holds.

    `texts`: all statements that are to see them. What none of them can name is left out, as each view takes time.
    `documents`: some may be MongoDB's.
    """
    envelope = {}
    if any(one.envelope for one in config.topics.values()):
        records, envelope = with_body(records), with_documents(VIEW) if documents else VIEW
    more = [f"{text} AS {column}" for column, text in envelope.items()]
    select(records, *VIEW_COLUMNS, *more).createOrReplaceTempView("records")
    claimed: list[str] = []
    for topic in ordered(config):
        one = config.topics[topic]
        mine = matches(topic)
        where = " AND ".join([mine, *(f"NOT ({other})" for other in claimed if topic.startswith("^"))])
        claimed.append(mine)
        view = name(one.as_ or topic)
        if not _may_name(texts, view):
            continue
        value = name(f"as_{list(config.topics).index(topic)}") if one.schema else "value"
        if one.envelope:
            where = f"{where} AND {envelope['op']} <> 't'"  # of which zync makes rows itself; none is no envelope
            shown = envelope | (typed(value) if one.schema else {})
            columns = [*VIEW_COLUMNS, *(f"{text} AS {column}" for column, text in shown.items())]
        else:
            columns = [f"{value} AS value" if column == "value" else column for column in VIEW_COLUMNS]
        select(records.where(where), *columns).createOrReplaceTempView(view)


def _may_name(texts: Sequence[str] | None, view: str) -> bool:
    """Whether one of the statements may name that view; any may that puts names together with IDENTIFIER."""
    return texts is None or any(view[1:-1].lower() in one.lower() or "identifier" in one.lower() for one in texts)
