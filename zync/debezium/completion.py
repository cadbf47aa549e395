"""When a Debezium transaction is complete: its rows say that they are its, and END counts them, by table.

Of a transaction sums are kept, and compared with those of the rows that END counts; where they cannot tell,
sql/judge/runs.sql does (zync.debezium.runs).
"""

from zync.config.model import Config
from zync.debezium.envelope import (
    BODY_BY_TEXT,
    IS_MESSAGE,
    IS_TRUNCATION,
    OF_MONGODB,
    PLACE,
    RUN_NAME,
    TOTAL_ORDER,
    field,
)
from zync.sql import literal


def _number(what: str) -> str:
    """A number for it, by chance like that of another once in 2^33; sums of 500 million of them are BIGINTs."""
    return f"pmod(xxhash64({what}), 1L << 33)"


def _numbered_order(order: str) -> str:
    """The number for a total_order: what its hash is more than that of the one before it.

    So the sum of those from 1 to n is what the hash of n is more than that of 0; and only those from 1 to n, each once,
    have it, but by such a chance: a sum of others has some other hash in it.
    """
    return f"{_number(order)} - {_number(f'{order} - 1L')}"


def _bits(what: str) -> str:
    """31 bits of its hash, and beside them their complement: whichever those are, 31 of the 62 bits are set.

    So of several, put together by OR, more are set as soon as two are not alike, but by a chance of one in 2^31.
    """
    return f"((xxhash64({what}) & 2147483647L) + 1L) * 2147483647L"


_ONE, _ALL_BITS = 31, "-1L"
"""How many bits are set where all are alike; and those of what nobody knows, which is like no other."""


def _numbered_table(name: str) -> str:
    """The number for a table by its schema and its own name: END has more or less before them, by connector."""
    return _number(f"substring_index({name}, '.', -2)")


_MESSAGES = _number("''")
"""The number for logical messages, which END calls after a Java object."""
_COUNTS = "array<struct<data_collection: string, event_count: bigint>>"

# Vitess has a keyspace for a schema, and an empty `db`.
_ROWS_TABLE = (
    f"concat_ws('.', coalesce({field('source.schema', 'string')}, nullif({field('source.db', 'string')}, ''), "
    f"{field('source.keyspace', 'string')}), "
    f"coalesce({field('source.table', 'string')}, {field('source.collection', 'string')}))"
)
_TABLE = _numbered_table(_ROWS_TABLE)
ROWS_TABLE = f"CASE WHEN {IS_MESSAGE} THEN {_MESSAGES} ELSE {_TABLE} END"
_COUNTED_TABLE = (
    f"CASE WHEN contains(c.data_collection, 'LogicalDecodingMessageId@') THEN {_MESSAGES} "
    f"ELSE {_numbered_table('c.data_collection')} END"
)


COUNT = field("event_count", "bigint")
COUNTED = (
    f"aggregate(try_{field('data_collections', _COUNTS)}, 0L, "
    f"(total, c) -> try_add(total, try_multiply(c.event_count, {_COUNTED_TABLE})))"
)
"""Of an END the sum of its rows' tables' numbers; null where there is no such sum."""


def is_uncounted(config: Config, table: str) -> str:
    """Whether the table of that name, with more or less before its schema, is among `transactions.uncounted`."""
    names = ", ".join(literal(".".join(one.split(".")[-2:])) for one in config.transactions.uncounted)
    return f"substring_index({table}, '.', -2) IN ({names})"


def counted(config: Config) -> str:
    """COUNTED without the tables that are not counted."""
    if not config.transactions.uncounted:
        return COUNTED
    said = f"try_{field('data_collections', _COUNTS)}"
    return COUNTED.replace(said, f"filter({said}, c -> NOT {is_uncounted(config, 'c.data_collection')})", 1)


def count(config: Config) -> str:
    """How many rows an END counts, without those of tables that are not counted; null where it does not say."""
    if not config.transactions.uncounted:
        return COUNT
    some = f"filter(try_{field('data_collections', _COUNTS)}, c -> {is_uncounted(config, 'c.data_collection')})"
    return f"try_subtract({COUNT}, coalesce(aggregate({some}, 0L, (total, c) -> try_add(total, c.event_count)), 0L))"


def rows_table(config: Config) -> str:
    """ROWS_TABLE; null for rows of tables that are not counted."""
    if not config.transactions.uncounted:
        return ROWS_TABLE
    return f"CASE WHEN NOT coalesce({is_uncounted(config, _ROWS_TABLE)}, false) THEN {ROWS_TABLE} END"


def decoded(config: Config) -> dict[str, str]:
    """What is made of each record as it is decoded: its `body`, of END what it `counted`, of a row its `total_order`.

    That is where it costs least: Spark makes one piece of code of all expressions before an `aggregate` or an `exists`,
    and another of all after it, and decoding has an `exists`; and what is several times in one that may fail it makes
    several times.
    """
    return {
        "body": BODY_BY_TEXT,
        "counted": f"CASE WHEN {_status(config)} = 'END' THEN {counted(config)} END",
        "total_order": f"CASE WHEN NOT {_ends(config)} THEN try_{TOTAL_ORDER} END",
    }


def brought(config: Config) -> dict[str, str]:
    """What each record brings to its transaction: a row a number for its table and total_order, and bits of its run.

    An END how many rows it counts, and what it says of them.
    """
    total = (
        f"coalesce(counted, CASE WHEN {field('data_collections', _COUNTS)} IS NULL THEN 0L "
        "ELSE raise_error('END counts no rows, or too many') END)"
    )
    rows = count(config)
    says = _says(rows, f"try_add({total}, {_number(rows)} - {_number('0L')})")
    row = "named_struct('one', 1L, 'number', {} + " + _numbered_order("total_order") + ", 'run', {})"
    message, other = row.format(_MESSAGES, _ALL_BITS), row.format(_TABLE, _bits(RUN_NAME))
    other_order = f"NOT {_ends(config)} AND {field('transaction.total_order', 'string')} IS NOT NULL"
    counts = f"coalesce({rows}, raise_error('END does not count'))"
    end = f"named_struct('count', {counts}, 'says', {says}, 'seqno', seqno)"
    apart = ""
    if config.transactions.uncounted:  # the others' numbers have gaps then, and sql/judge/runs.sql is to say (TORN)
        nothing = f"named_struct('one', 0L, 'number', 0L, 'run', {_ALL_BITS})"
        apart = f"WHEN {is_uncounted(config, _ROWS_TABLE)} THEN {nothing} "
    return {
        "row": f"CASE WHEN total_order IS NOT NULL THEN CASE WHEN {IS_MESSAGE} THEN {message} {apart}ELSE {other} END "
        f"WHEN {other_order} THEN raise_error('total_order is no number') END",
        "end": f"CASE WHEN {_status(config)} = 'END' THEN {end} END",
    }


def aggregated(config: Config) -> list[tuple[str, str]]:
    """What of `brought` is aggregated, and how: a0, a1, … in DONE, TORN and KNOWN.

    Of rows how many there are, the sum of their numbers, and all bits of their runs; of ENDs the least number of rows
    that one counts, and all bits of what they say of them. In order of commit where the first is, too.
    """
    first = [("end.seqno", "min({}){over}")] if config.transactions.order == "commit" else []
    return [
        ("row.one", "sum({}){over}"),
        ("row.number", "sum({}){over}"),
        ("row.run", "bit_or({}){over}"),
        ("end.count", "min({}){over}"),
        ("end.says", "bit_or({}){over}"),
        *first,
    ]


def _says(count: str, total: str) -> str:
    """Bits of what an END says of its rows, or of what rows are: how many, and their sum."""
    return _bits(f"{count}, {total}")


_ARE = _says("a0", "a1")

DONE = f"a3 = 0 AND bit_count(a4) = {_ONE} OR a3 = a0 AND a4 = {_ARE}"
"""Whether a transaction with rows of one run is done: they are what every END so far says."""

TORN = (
    f"bit_count(a2) <> {_ONE} OR bit_count(a4) <> {_ONE} OR decision.action IN ('release', 'discard') "
    f"OR a3 BETWEEN 1 AND a0 AND a4 <> {_ARE}"
)
"""Whether there are rows of several runs, or that may be, or some twice, or ENDs that say different things, so that
sql/judge/runs.sql is to say.

Of one run that sent some twice sums cannot tell before its END: then they are members in flight like others."""

_COMMIT_OF_ROW = ", ".join(f"try_{field(f'{block}.commit_lsn', 'bigint')}" for block in ("source", "transaction"))
LAST_ROW = f"coalesce(max(coalesce({_COMMIT_OF_ROW})), nullif(max({PLACE}), 0L))"
"""The position of a transaction that operators have go out without its END: of the commit, where rows say it
(`commit_lsn`, https://github.com/debezium/debezium/pull/7764); or of its last row, which is before the commit, but
after all that the row's key had before. Taken of all rows it would cost a tenth of each sync."""

LATE_END = (
    "its transaction was settled before this END came: what an operator had go out of it has the position of its last "
    "row, not that of its commit"
)
"""Why END is set aside that comes after a transaction was released."""

PLACE_IN_ORDER = "a5"
"""Where the transaction stands in order of commit: at its first END."""

KNOWN = f"CASE WHEN begins OR p3 = 0 OR lane = 'txn' AND p3 = a0 AND p4 = {_ARE} THEN 'said' END"
"""What BEGIN or END is that says nothing new of a transaction that is done."""


def beside(config: Config) -> dict[str, str]:
    """What else zync takes from each record: whether it `begins` a transaction, or `truncates` a table; the `position`.

    That is of the transaction's commit. And whether it has a `document` of MongoDB's: views read those in an own way,
    where there are any.
    """
    status = _status(config)
    of_id = f"try_cast(regexp_extract({field('id', 'string')}, '^[0-9]+:([0-9]+)$', 1) AS BIGINT)"
    at = f"coalesce(try_{field('commit_lsn', 'bigint')}, {of_id}, offset)"
    alone = f"CASE WHEN found.id IS NULL AND {PLACE} > 0 THEN {PLACE} END"
    return {
        "begins": f"coalesce({status} = 'BEGIN', false)",
        "truncates": f"NOT {_ends(config)} AND {IS_TRUNCATION}",
        "position": f"CASE WHEN {status} = 'END' THEN {at} ELSE {alone} END",
        "document": f"NOT {_ends(config)} AND {OF_MONGODB}",
    }


def _status(config: Config) -> str:
    return f"CASE WHEN {_ends(config)} THEN {field('status', 'string')} END"


def _ends(config: Config) -> str:
    """Whether the column `topic` is one of BEGIN and END."""
    return f"topic IN ({', '.join(map(literal, config.transactions.end_topics))})"
