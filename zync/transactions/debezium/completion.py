"""When a Debezium transaction is complete: its rows say that they are its, and END counts them, by table.

Of a transaction sums are kept, and compared with those of the rows that END counts; where they cannot tell,
sql/runs.sql does (zync.transactions.debezium.runs).
"""

from zync.config import Config
from zync.sql import literal
from zync.transactions.debezium.envelope import BODY_BY_TEXT, PLACE, RUN, TOTAL_ORDER, field


def _number(what: str) -> str:
    """A number for it, by chance like that of another once in 2^33; sums of 500 million of them are BIGINTs."""
    return f"pmod(xxhash64({what}), 1L << 33)"


def _numbered_order(order: str) -> str:
    """The number for a total_order: what its hash is more than that of the one before it.

    So the sum of those from 1 to n is what the hash of n is more than that of 0; and only those from 1 to n, each once,
    have it, but by such a chance: a sum of others has some other hash in it.
    """
    return f"{_number(order)} - {_number(f'{order} - 1L')}"


def _numbered_table(name: str) -> str:
    """The number for a table by its schema and its own name: END has more or less before them, by connector."""
    return _number(f"substring_index({name}, '.', -2)")


_MESSAGES = _number("''")
"""The number for logical messages, which END calls after a Java object."""
_COUNTS = "array<struct<data_collection: string, event_count: bigint>>"

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


def decoded(config: Config) -> dict[str, str]:
    """What is made of each record as it is decoded: its `body`, and of END the sum of its rows' tables' numbers.

    That is where it costs least: Spark makes one piece of code of all expressions before an `aggregate` or an `exists`,
    and another of all after it, and decoding has an `exists`. Null where there is no such sum.
    """
    product = f"try_multiply(c.event_count, {_COUNTED_TABLE})"
    counts = f"try_{field('data_collections', _COUNTS)}"
    return {
        "body": BODY_BY_TEXT,
        "counted": f"CASE WHEN {_status(config)} = 'END' "
        f"THEN aggregate({counts}, 0L, (total, c) -> try_add(total, {product})) END",
    }


def aggregated(config: Config) -> list[tuple[str, str]]:
    """What each record brings to its transaction, and the aggregate of that: a0, a1, … in DONE, TORN and KNOWN.

    Of rows how many there are, the sum of numbers for their tables and for their total_orders, and the least and the
    greatest of their runs; of ENDs how many rows each counts, and what the sums of both are, of all those rows.
    """
    count = field("event_count", "bigint")
    total = (
        f"coalesce(counted, CASE WHEN {field('data_collections', _COUNTS)} IS NULL THEN 0L "
        "ELSE raise_error('END counts no rows, or too many') END)"
    )
    orders = f"{_number(count)} - {_number('0L')}"
    said = f"named_struct('seqno', seqno, 'count', {count}, 'total', {total}, 'orders', {orders})"
    rows = f"CASE WHEN topic <> {literal(str(config.transactions.topic))} AND {TOTAL_ORDER} IS NOT NULL THEN {{}} END"
    return [
        (rows.format("1L"), "sum({}){over}"),
        (rows.format(f"{ROWS_TABLE} + {_numbered_order(TOTAL_ORDER)}"), "sum({}){over}"),
        (f"CASE WHEN {_status(config)} = 'END' THEN array({said}) END", "flatten(collect_list({}){over})"),
        (rows.format(RUN), "min({}){over}"),
        (rows.format(RUN), "max({}){over}"),
    ]


_FITS = "{0}.count = a0 AND {0}.total + {0}.orders = a1"
"""Whether the rows, of one run, are those from 1 to what that END counts, by table, each once."""

DONE = f"size(a2) > 0 AND forall(a2, e -> e.count = 0 OR {_FITS.format('e')})"
"""Whether a transaction with rows of one run is done: they are what every END so far counts."""

TORN = (
    "a3 <> a4 OR a3 = 'any' OR decision.action = 'release' OR size(a2) > 0 AND "
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
