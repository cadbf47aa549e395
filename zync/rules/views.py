"""The views that rules see: `records`, and one for each topic."""

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
    """Makes the view `records` and one for each topic of what `records` (VIEW_COLUMNS and schema structs) holds.

    `texts`: all statements that are to see them. What none of them can name is left out, as each view takes time.
    `guards`: conditions by view, in lower case, that hold of each of its records or raise an error.
    `documents`: some may be MongoDB's.
    """
    envelope = {}
    if has_envelopes(config):
        records = select(records, "*", f"coalesce({CLEAN}, {BODY}) AS body")
        envelope = with_documents(VIEW) if documents else VIEW
    more = [f"{text} AS {column}" for column, text in envelope.items()]
    if _may_name(texts, name("records")):
        _guarded(select(records, *VIEW_COLUMNS, *more), "records", guards).createOrReplaceTempView("records")
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
            of_envelope = envelope | (typed(value) if one.schema else {})
            columns = [*VIEW_COLUMNS, *(f"{text} AS {column}" for column, text in of_envelope.items())]
        else:
            columns = [f"{value} AS value" if column == "value" else column for column in VIEW_COLUMNS]
        shown = select(records.where(where), *columns)
        _guarded(shown, one.as_ or topic, guards).createOrReplaceTempView(view)


def _guarded(rows: DataFrame, view: str, guards: Mapping[str, str]) -> DataFrame:
    return rows.where(guards[view.lower()]) if view.lower() in guards else rows


def _may_name(texts: Sequence[str] | None, view: str) -> bool:
    """Whether one of the statements may name that view; any may that puts names together with IDENTIFIER."""
    return texts is None or any(view[1:-1].lower() in one.lower() or "identifier" in one.lower() for one in texts)
