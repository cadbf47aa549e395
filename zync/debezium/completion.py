"""Decides, in SQL, when a Debezium transaction is complete: each row names its transaction, END counts rows by table.

zync keeps a few sums over a transaction's rows and compares them with the same sums over the counts of END. Where the
sums cannot decide, sql/judge/runs.sql does (zync.debezium.runs).
"""

from zync.config.model import Config
from zync.debezium.envelope import (
    BODY_BY_TEXT,
    IS_MESSAGE,
    IS_TRUNCATION,
    OF_MONGODB,
    RUN_NAME,
    SOURCE_POSITION,
    TOTAL_ORDER,
    field,
)
from zync.sql import literal


def _number(value: str) -> str:
    """Returns SQL for a hash of 33 bits: two values collide once in 2^33, and the sum of 500 million fits a BIGINT."""
    return f"pmod(xxhash64({value}), 1L << 33)"


def _numbered_order(order: str) -> str:
    """Returns SQL for the number of a total_order: its hash minus the hash of the total_order before it.

    The numbers from 1 to n sum up to the hash of n minus the hash of 0. No other set of total_orders has that sum,
    except by a collision, as some other hash remains in its sum.
    """
    return f"{_number(order)} - {_number(f'{order} - 1L')}"


def _bits(value: str) -> str:
    """Returns SQL for 31 bits of a hash followed by their complement, so that exactly 31 of the 62 bits are set.

    bit_or over several values has more than 31 bits set as soon as two values differ, except for once in 2^31.
    """
    return f"((xxhash64({value}) & 2147483647L) + 1L) * 2147483647L"


_EQUAL_BITS, _ALL_BITS = 31, "-1L"
"""The number of bits that bit_or sets if all values are equal; the bits of an unknown value, equal to no other."""


def _numbered_table(name: str) -> str:
    """Returns SQL for a table's number, a hash of schema and table; what precedes these in END differs by connector."""
    return _number(f"substring_index({name}, '.', -2)")


_MESSAGES = _number("''")
"""The table number of logical messages, which END names after a Java object."""
_COUNTS = "array<struct<data_collection: string, event_count: bigint>>"

# Vitess has a keyspace for a schema, and an empty `db`.
_ROWS_TABLE = (
    f"concat_ws('.', coalesce({field('source.schema', 'string')}, nullif({field('source.db', 'string')}, ''), "
    f"{field('source.keyspace', 'string')}), "
    f"coalesce({field('source.table', 'string')}, {field('source.collection', 'string')}))"
)
_TABLE = _numbered_table(_ROWS_TABLE)
ROWS_TABLE = f"CASE WHEN {IS_MESSAGE} THEN {_MESSAGES} ELSE {_TABLE} END"
"""SQL for the number of a row's table."""
_COUNTED_TABLE = (
    f"CASE WHEN contains(c.data_collection, 'LogicalDecodingMessageId@') THEN {_MESSAGES} "
    f"ELSE {_numbered_table('c.data_collection')} END"
)


COUNT = field("event_count", "bigint")
COUNTED = (
    f"aggregate(try_{field('data_collections', _COUNTS)}, 0L, "
    f"(total, c) -> try_add(total, try_multiply(c.event_count, {_COUNTED_TABLE})))"
)
"""SQL for the sum, over the rows that an END counts, of their tables' numbers; null if END does not count by table."""


def is_uncounted(config: Config, table: str) -> str:
    """Returns the condition that a table is in `transactions.uncounted`.

    Args:
        config: The config.
        table: SQL for the table's name, with or without parts before its schema.
    """
    names = ", ".join(literal(".".join(name.split(".")[-2:])) for name in config.transactions.uncounted)
    return f"substring_index({table}, '.', -2) IN ({names})"


def counted(config: Config) -> str:
    """Returns SQL for COUNTED without the tables in `transactions.uncounted`."""
    if not config.transactions.uncounted:
        return COUNTED
    collections = f"try_{field('data_collections', _COUNTS)}"
    return COUNTED.replace(
        collections, f"filter({collections}, c -> NOT {is_uncounted(config, 'c.data_collection')})", 1
    )


def count(config: Config) -> str:
    """Returns SQL for the number of rows that an END counts, without uncounted tables; null if it has no count."""
    if not config.transactions.uncounted:
        return COUNT
    uncounted = f"filter(try_{field('data_collections', _COUNTS)}, c -> {is_uncounted(config, 'c.data_collection')})"
    return (
        f"try_subtract({COUNT}, coalesce(aggregate({uncounted}, 0L, (total, c) -> try_add(total, c.event_count)), 0L))"
    )


def rows_table(config: Config) -> str:
    """Returns SQL for the table number of a row, ROWS_TABLE; null for rows of uncounted tables."""
    if not config.transactions.uncounted:
        return ROWS_TABLE
    return f"CASE WHEN NOT coalesce({is_uncounted(config, _ROWS_TABLE)}, false) THEN {ROWS_TABLE} END"


def decoded(config: Config) -> dict[str, str]:
    """Returns the columns computed while records are decoded: `body`, `counted` of an END, `total_order` of a row.

    They cost least there. Spark compiles expressions before an `aggregate` or `exists` together, and those after it
    separately, and decoding has an `exists` anyway. A subexpression repeated in an expression that may fail is
    evaluated each time.
    """
    return {
        "body": BODY_BY_TEXT,
        "counted": f"CASE WHEN {_status(config)} = 'END' THEN {counted(config)} END",
        "total_order": f"CASE WHEN NOT {_ends(config)} THEN try_{TOTAL_ORDER} END",
    }


def brought(config: Config) -> dict[str, str]:
    """Returns the columns that each record contributes to its transaction's aggregates.

    `row`, of a row: 1, the number of its table and total_order, and the bits of its run. `end`, of an END: the number
    of rows that it counts, the bits of its counts, and its seqno.
    """
    total = (
        f"coalesce(counted, CASE WHEN {field('data_collections', _COUNTS)} IS NULL THEN 0L "
        "ELSE raise_error('END counts no rows, or too many') END)"
    )
    rows = count(config)
    end_bits = _count_bits(rows, f"try_add({total}, {_number(rows)} - {_number('0L')})")
    row = "named_struct('one', 1L, 'number', {} + " + _numbered_order("total_order") + ", 'run', {})"
    message, table_row = row.format(_MESSAGES, _ALL_BITS), row.format(_TABLE, _bits(RUN_NAME))
    has_invalid_order = f"NOT {_ends(config)} AND {field('transaction.total_order', 'string')} IS NOT NULL"
    counts = f"coalesce({rows}, raise_error('END does not count'))"
    end = f"named_struct('count', {counts}, 'says', {end_bits}, 'seqno', seqno)"
    uncounted_case = ""
    if (
        config.transactions.uncounted
    ):  # the counted rows' numbers then have gaps: sql/judge/runs.sql decides (MULTI_RUN)
        zero_row = f"named_struct('one', 0L, 'number', 0L, 'run', {_ALL_BITS})"
        uncounted_case = f"WHEN {is_uncounted(config, _ROWS_TABLE)} THEN {zero_row} "
    return {
        "row": f"CASE WHEN total_order IS NOT NULL "
        f"THEN CASE WHEN {IS_MESSAGE} THEN {message} {uncounted_case}ELSE {table_row} END "
        f"WHEN {has_invalid_order} THEN raise_error('total_order is no number') END",
        "end": f"CASE WHEN {_status(config)} = 'END' THEN {end} END",
    }


def aggregated(config: Config) -> list[tuple[str, str]]:
    """Returns the aggregates over `brought`, as pairs (input, aggregate).

    They are a0, a1, … in DONE, MULTI_RUN and KNOWN.

    Of rows: a0 their count, a1 the sum of their numbers, a2 the bits of their runs. Of ENDs: a3 the smallest number of
    rows that an END counts, a4 the bits of their counts, and with order: commit a5 the seqno of the first END.
    """
    first_end = [("end.seqno", "min({}){over}")] if config.transactions.order == "commit" else []
    return [
        ("row.one", "sum({}){over}"),
        ("row.number", "sum({}){over}"),
        ("row.run", "bit_or({}){over}"),
        ("end.count", "min({}){over}"),
        ("end.says", "bit_or({}){over}"),
        *first_end,
    ]


def _count_bits(count: str, total: str) -> str:
    """Returns SQL for the bits of a count of rows and the sum of their numbers, by an END or of the rows themselves."""
    return _bits(f"{count}, {total}")


_ROW_BITS = _count_bits("a0", "a1")
"""SQL for the bits that an END has which counts exactly the rows so far."""

DONE = f"a3 = 0 AND bit_count(a4) = {_EQUAL_BITS} OR a3 = a0 AND a4 = {_ROW_BITS}"
"""SQL: whether a transaction with rows of a single run is done, that is, every END so far counts exactly its rows."""

MULTI_RUN = (
    f"bit_count(a2) <> {_EQUAL_BITS} OR bit_count(a4) <> {_EQUAL_BITS} OR decision.action IN ('release', 'discard') "
    f"OR a3 BETWEEN 1 AND a0 AND a4 <> {_ROW_BITS}"
)
"""SQL: whether sums cannot decide, so that sql/judge/runs.sql has to.

That is so with rows of several runs, or possibly of several, with rows that came twice, with ENDs that disagree, and
after a decision to release or discard the transaction.
Before END, sums do not reveal that a single run sent rows twice: until then both are members in flight."""

_COMMIT_OF_ROW = ", ".join(f"try_{field(f'{block}.commit_lsn', 'bigint')}" for block in ("source", "transaction"))
LAST_ROW = f"coalesce(max(coalesce({_COMMIT_OF_ROW})), nullif(max({SOURCE_POSITION}), 0L))"
"""SQL for the position of a transaction that an operator releases without its END.

It is the commit's position if rows have it (`commit_lsn`, https://github.com/debezium/debezium/pull/7764), else that of
the last row, which is before the commit, but after all earlier changes of the row's key. Computed over all rows it
would cost a tenth of each sync."""

LATE_END = (
    "its transaction was settled before this END came: what an operator had go out of it has the position of its last "
    "row, not that of its commit"
)
"""Why an END is set aside that comes after its transaction was released."""

END_SEQNO = "a5"
"""The aggregate with the seqno of a transaction's first END, which says where it is in the order of commit."""

KNOWN = f"CASE WHEN begins OR p3 = 0 OR lane = 'txn' AND p3 = a0 AND p4 = {_ROW_BITS} THEN 'repeated_marker' END"
"""SQL for the fate of a BEGIN or END that adds nothing to a transaction that is done; null for other records."""


def more_contributions(config: Config) -> dict[str, str]:
    """Returns further columns of each record.

    `begins`: whether it is a BEGIN. `truncates`: whether it is a TRUNCATE. `position`: the position of the
    transaction's commit in the source. `document`: whether it is a MongoDB document, which views read differently.
    """
    status = _status(config)
    of_id = f"try_cast(regexp_extract({field('id', 'string')}, '^[0-9]+:([0-9]+)$', 1) AS BIGINT)"
    commit_position = f"coalesce(try_{field('commit_lsn', 'bigint')}, {of_id}, offset)"
    row_position = f"CASE WHEN found.id IS NULL AND {SOURCE_POSITION} > 0 THEN {SOURCE_POSITION} END"
    return {
        "begins": f"coalesce({status} = 'BEGIN', false)",
        "truncates": f"NOT {_ends(config)} AND {IS_TRUNCATION}",
        "position": f"CASE WHEN {status} = 'END' THEN {commit_position} ELSE {row_position} END",
        "document": f"NOT {_ends(config)} AND {OF_MONGODB}",
    }


def _status(config: Config) -> str:
    """Returns SQL for BEGIN or END; null for rows."""
    return f"CASE WHEN {_ends(config)} THEN {field('status', 'string')} END"


def _ends(config: Config) -> str:
    """Returns the condition that a record's `topic` is a topic of BEGIN and END."""
    return f"topic IN ({', '.join(map(literal, config.transactions.end_topics))})"
