"""The preset `debezium`: what its connectors' transactions look like, as expressions and expanded config.

A transaction's rows say so in their envelope; BEGIN and END are records of a topic of their own, and END counts the
rows, by table. See https://debezium.io/documentation/reference/stable (each connector's "transaction metadata").
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from zync.config import Config, Topic, Transactions
from zync.frames import select
from zync.sql import literal
from zync.transactions.topics import claimed_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRAPPED = (
    "variant_get(value, '$.schema', 'variant') IS NOT NULL AND variant_get(value, '$.payload', 'variant') IS NOT NULL"
)
_UNWRAPPED = "THEN variant_get(value, '$.payload', 'variant') ELSE value END"
BODY = f"CASE WHEN {_WRAPPED} {_UNWRAPPED}"
BODY_BY_TEXT = f"CASE WHEN contains(value_text, '\"payload\"') IS NOT FALSE AND {_WRAPPED} {_UNWRAPPED}"
"""The same, where the value's text is there to be looked at first: what a VARIANT does not have is looked for by an
exception, which takes as long as to look for ten fields that it has (Spark's VariantGet returns from inside a loop)."""


def with_body(records: "DataFrame") -> "DataFrame":
    """The records with `body`, which all expressions here see.

    It is the envelope, or BEGIN or END, with or without the JSON converter's `schema` and `payload` around it.
    """
    return select(records, "*", f"{BODY} AS body")


def field(path: str, kind: str) -> str:
    """The body's field at `path`; SQL NULL where it is not there."""
    return f"variant_get(body, '$.{path}', '{kind}')"


@dataclass(frozen=True)
class Connector:
    """What differs from one connector to another.

    identity: a pattern of transaction ids whose first group names the transaction, where the whole id does not.
    place: a number over the row's `source` that rises in the source's order, 0 where only total_order does.
    image: what, beside the row's images, tells two rows of one transaction apart.
    """

    identity: str | None
    place: str
    image: str


CONNECTORS = {
    # txId:LSN, and BEGIN, each row and END carry different LSNs
    "postgresql": Connector("^([0-9]+):[0-9]+$", field("source.lsn", "bigint"), field("source.lsn", "string")),
    # a GTID, or file=…,pos=… of the transaction's begin
    "mysql": Connector(
        None,
        "0L",
        f"concat_ws('/', {field('source.file', 'string')}, {field('source.pos', 'string')}, "
        f"{field('source.row', 'string')})",
    ),
    # the commit LSN, like 00000025:00000d08:0025; END comes only when the next transaction begins
    "sqlserver": Connector(
        None,
        "0L",
        f"concat_ws('/', {field('source.change_lsn', 'string')}, {field('source.event_serial_no', 'string')})",
    ),
    # the transaction's id in hexadecimal
    "oracle": Connector(
        None,
        "0L",
        f"concat_ws('/', {field('source.scn', 'string')}, {field('source.rs_id', 'string')}, "
        f"{field('source.ssn', 'string')})",
    ),
    # a number
    "mongodb": Connector(
        None, "0L", f"concat_ws('/', {field('source.ts_ms', 'string')}, {field('source.ord', 'string')})"
    ),
}
"""The connectors that zync knows; `mariadb` is as `mysql`, and what is not here is told apart by its images alone."""

_LIKE = {"mariadb": "mysql"}


def _by_connector(what: dict[str, str], otherwise: str) -> str:
    named = {**what, **{name: what[like] for name, like in _LIKE.items()}}
    cases = " ".join(f"WHEN '{name}' THEN {expression}" for name, expression in named.items())
    return f"CASE {field('source.connector', 'string')} {cases} ELSE {otherwise} END"


PLACE = _by_connector({name: one.place for name, one in CONNECTORS.items()}, "0L")
"""A row's place in the source's order; between rows of one place `total_order` decides."""

ORDER = f"named_struct('place', {PLACE}, 'total_order', {field('transaction.total_order', 'bigint')})"

_VERSION = field("source.version", "string")
_CONTINUES = (
    f"(try_cast(split_part({_VERSION}, '.', 1) AS INT), try_cast(split_part({_VERSION}, '.', 2) AS INT)) >= (3, 7)"
)
"""Whether total_order goes on after a restart inside a transaction, and so tells its rows apart."""

_IMAGE = (
    f"md5(concat_ws('|', {_by_connector({name: one.image for name, one in CONNECTORS.items()}, 'NULL')}, "
    f"{field('source.schema', 'string')}, {field('source.table', 'string')}, {field('op', 'string')}, "
    f"to_json({field('before', 'variant')}), '|', to_json({field('after', 'variant')})))"
)
TOTAL_ORDER = field("transaction.total_order", "bigint")
RECORD_ID = f"CASE WHEN {TOTAL_ORDER} IS NULL THEN NULL WHEN {_CONTINUES} THEN string({TOTAL_ORDER}) ELSE {_IMAGE} END"
"""What a row has in common with what a restart sends again of it, and with no other (but see sql/runs.sql)."""

NUMBERED = f"coalesce({_CONTINUES}, false)"
"""Whether RECORD_ID is the row's number."""

RUN = (
    f"CASE WHEN {field('op', 'string')} = 'm' THEN 'any' ELSE "
    "coalesce(CAST(get(filter(headers, h -> h.key = '__debezium.context.runId'), 0).value AS STRING), '') END"
)
"""Which run of the connector sent the row; empty before there was such a header. Logical messages never have it."""


def _number(what: str) -> str:
    """A number for it, by chance like that of another once in 2^33; sums of 500 million of them are BIGINTs."""
    return f"pmod(xxhash64({what}), 1L << 33)"


def _numbered_table(name: str) -> str:
    """The number for a table by its schema and its own name: END has more or less before them, by connector."""
    return _number(f"substring_index({name}, '.', -2)")


_MESSAGES = _number("''")
"""The number for logical messages, which END calls after a Java object."""

ROWS_TABLE = (
    f"CASE WHEN {field('op', 'string')} = 'm' THEN {_MESSAGES} ELSE "
    + _numbered_table(
        f"concat_ws('.', coalesce({field('source.schema', 'string')}, {field('source.db', 'string')}), "
        f"coalesce({field('source.table', 'string')}, {field('source.collection', 'string')}))"
    )
    + " END"
)
_COUNTED_TABLE = (
    f"CASE WHEN contains(c.data_collection, 'LogicalDecodingMessageId@') THEN {_MESSAGES} "
    f"ELSE {_numbered_table('c.data_collection')} END"
)
_MOST_ROWS = 10_000_000
"""Of more, the numbers from 1 on are not added up for an END: sql/runs.sql says, which looks at each row."""


def aggregated(config: Config) -> list[tuple[str, str]]:
    """What each record brings to its transaction, and the aggregate of that: a0, a1, … in DONE, TORN and KNOWN.

    Of rows how many there are, the sum of numbers for their tables and for their total_orders, and the least and the
    greatest of their runs; of ENDs how many rows each counts, and what the sums of both are, of all those rows.
    """
    counted = field("data_collections", "array<struct<data_collection: string, event_count: bigint>>")
    total = f"aggregate(coalesce({counted}, array()), 0L, (total, c) -> total + c.event_count * {_COUNTED_TABLE})"
    count = field("event_count", "bigint")
    orders = (
        f"CASE WHEN {count} BETWEEN 1 AND {_MOST_ROWS} "
        f"THEN aggregate(sequence(1L, {count}), 0L, (orders, n) -> orders + {_number('n')}) END"
    )
    said = f"named_struct('seqno', seqno, 'count', {count}, 'total', {total}, 'orders', {orders})"
    rows = f"CASE WHEN topic <> {literal(str(config.transactions.topic))} AND {TOTAL_ORDER} IS NOT NULL THEN {{}} END"
    return [
        (rows.format("1L"), "sum({}){over}"),
        (rows.format(f"{ROWS_TABLE} + {_number(TOTAL_ORDER)}"), "sum({}){over}"),
        (f"CASE WHEN {_status(config)} = 'END' THEN array({said}) END", "flatten(collect_list({}){over})"),
        (rows.format(RUN), "min({}){over}"),
        (rows.format(RUN), "max({}){over}"),
    ]


_FITS = "{0}.count = a0 AND {0}.total + {0}.orders = a1"
"""Whether the rows, of one run, are those from 1 to what that END counts, by table, each once."""

DONE = f"size(a2) > 0 AND forall(a2, e -> e.count = 0 OR {_FITS.format('e')})"
"""Whether a transaction with rows of one run is done: they are what every END so far counts."""

TORN = (
    "a3 <> a4 OR a3 = 'any' OR decision.action = 'release' OR "
    f"exists(a2, e -> e.count > 0 AND e.count <= a0 AND NOT coalesce({_FITS.format('e')}, false))"
)
"""Whether there are rows of several runs, or that may be, or some twice, so that sql/runs.sql is to say.

Of one run that sent some twice sums cannot tell before its END: then they are members in flight like others."""

LAST_ROW = f"nullif(max({PLACE}), 0L)"
"""The position of a transaction that operators have go out without its END: of its last row, which is before the
commit, but after all that the row's key had before. Taken of all rows it would cost a tenth of each sync."""

PLACE_IN_ORDER = "get(a2, 0).seqno"
"""Where the transaction stands in order of commit: at its first END."""

KNOWN = f"""CASE WHEN begins OR get(p2, 0).count = 0 THEN 'said'
  WHEN lane = 'txn' AND {_FITS.format("get(p2, 0)")} THEN 'said' END"""
"""What BEGIN or END is that says nothing new of a transaction that is done."""


def beside(config: Config) -> dict[str, str]:
    """What else zync takes from each record: whether it `begins` a transaction, and the `position` of its commit."""
    status = _status(config)
    at = f"coalesce(try_cast(regexp_extract({field('id', 'string')}, '^[0-9]+:([0-9]+)$', 1) AS BIGINT), offset)"
    alone = f"CASE WHEN found.id IS NULL AND {PLACE} > 0 THEN {PLACE} END"
    return {
        "begins": f"coalesce({status} = 'BEGIN', false)",
        "position": f"CASE WHEN {status} = 'END' THEN {at} ELSE {alone} END",
    }


def _status(config: Config) -> str:
    return f"CASE WHEN topic = {literal(str(config.transactions.topic))} THEN {field('status', 'string')} END"


def _image(path: str) -> str:
    """A row's image; SQL NULL where JSON has null."""
    found = field(path, "variant")
    return f"CASE WHEN NOT is_variant_null({found}) THEN {found} END"


VIEW = {
    "op": field("op", "string"),
    "before": _image("before"),
    "after": _image("after"),
    "row": f"coalesce({_image('after')}, {_image('before')})",
    "source": field("source", "variant"),
    "ts": f"timestamp_millis({field('ts_ms', 'bigint')})",
    "_order": ORDER,
}
"""The columns that rules see of an envelope, beside those of every record; `row` is the newest image there is."""


def typed(value: str) -> dict[str, str]:
    """The columns of VIEW that are structs where the topic has a schema, `value` being the envelope by it."""
    before, after = (f"coalesce({value}.payload.{image}, {value}.{image})" for image in ("before", "after"))
    return {"before": before, "after": after, "row": f"coalesce({after}, {before})"}


def transaction_id(topic: str) -> str:
    """The transaction of a record of the preset's topics, `topic` being that of BEGIN and END; null for none."""
    own, rows = field("id", "string"), field("transaction.id", "string")
    text = f"CASE WHEN topic = {literal(topic)} THEN {own} ELSE {rows} END"
    for one in CONNECTORS.values():
        if one.identity:
            text = f"regexp_replace({text}, '{one.identity}', '$1')"
    return text


def no_envelope(config: Config) -> str:
    """Whether a record of a table, by the name that the config or a rule has for it, is none of a connector's.

    Flattened, say, by a transform on its way. Topics that merely have the prefix may be anything, as heartbeats are.
    """
    tables = [name for name, one in config.topics.items() if one.envelope and not name.startswith("^")]
    if not tables:
        return "false"
    return f"{claimed_by(config, tables)} AND value IS NOT NULL AND {field('op', 'string')} IS NULL"


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
        name: Topic() for rule in config.outputs if rule.sql for name in _names(rule.sql, f"{prefix}.") if name != topic
    }
    topics = {}
    for name, one in {**named, **config.topics}.items():
        if one.id or not covers(config.transactions, name):
            topics[name] = one
        else:
            topics[name] = replace(ours, schema=one.schema and envelope(one.schema), as_=one.as_, envelope=True)
    topics[topic] = ours
    topics.setdefault(f"^{re.escape(prefix)}\\.", replace(ours, envelope=True))
    return replace(config, topics=topics)


def envelope(schema: str) -> str:
    """The schema of an envelope around rows of that schema."""
    row = f"STRUCT<{schema}>"
    return f"before {row}, after {row}, payload STRUCT<before: {row}, after: {row}>"


def _names(rule: Path, prefix: str) -> list[str]:
    """The topics under the prefix whose views a rule names."""
    text = rule.read_text(encoding="utf-8")
    return sorted({name for name in re.findall(r"`([^`]+)`", text) if name.startswith(prefix)})
