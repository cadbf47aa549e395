"""What Debezium's records look like, as expressions: a row's envelope, and BEGIN and END of its transaction."""

from dataclasses import dataclass

from zync.config.model import Config
from zync.config.topics import claimed_by
from zync.debezium.unavailable import LEFT_OUT, OLD_KEY_VALUE
from zync.sql import literal

_WRAPPED = (
    "variant_get(value, '$.op', 'variant') IS NULL AND variant_get(value, '$.schema', 'variant') IS NOT NULL "
    "AND variant_get(value, '$.payload', 'variant') IS NOT NULL THEN variant_get(value, '$.payload', 'variant')"
)
BODY = f"CASE WHEN {_WRAPPED} ELSE value END"
"""What rows have is looked at first: that a VARIANT lacks a field Spark says by an exception inside (VariantGet returns
from within a loop), and to look for the `$.schema` that hardly a record has took a fifth of a sync."""
BODY_BY_TEXT = f"CASE WHEN contains(value_text, '\"payload\"') IS NOT FALSE AND {_WRAPPED} ELSE value END"
"""The same, where the value's text may be there to be looked at before that."""


def field(path: str, kind: str) -> str:
    """The body's field at `path`; SQL NULL where it is not there."""
    return f"variant_get(body, '$.{path}', '{kind}')"


@dataclass(frozen=True)
class Connector:
    """What differs from one connector to another.

    identity: a pattern of transaction ids whose first group names the transaction, where the whole id does not.
    place: a number over the row's `source` that rises in the source's order, 0 where only total_order does.
    image: what, beside the row's images, tells two rows of one transaction apart.
    numbered_image: the same of a row that has a `total_order` for good, where not all of `image` stays as it was when
    the row is sent again.
    common: what all rows of a transaction have in common, and hardly those of another that has the same id.
    """

    identity: str | None
    place: str
    image: str
    numbered_image: str | None = None
    common: str = "CAST(NULL AS STRING)"


_BINLOG = (
    f"concat_ws('/', {field('source.file', 'string')}, {field('source.pos', 'string')}, "
    f"{field('source.row', 'string')})"
)

CONNECTORS = {
    # txId:LSN, and BEGIN, each row and END carry different LSNs
    "postgresql": Connector(
        "^([0-9]+):[0-9]+$",
        field("source.lsn", "bigint"),
        field("source.lsn", "string"),
        common=field("source.ts_ms", "string"),  # of the commit
    ),
    # a GTID, or file=…,pos=… of the transaction's begin. With a GTID another replica may send the row again, and its
    # binlog has other positions.
    "mysql": Connector(None, "0L", _BINLOG, f"CASE WHEN {field('source.gtid', 'string')} IS NULL THEN {_BINLOG} END"),
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
    # lsid:txnNumber, as {"id": {"$binary": …}, …}:5; END comes only with the next event
    "mongodb": Connector(
        None, "0L", f"concat_ws('/', {field('source.ts_ms', 'string')}, {field('source.ord', 'string')})"
    ),
}
"""The connectors that zync knows, and those of `_LIKE`; what is not here is told apart by its images alone.

Vitess has a VGTID for an id, Db2 the commit LSN, Informix (as PostgreSQL) txId:LSN.
"""

_LIKE = {"mariadb": "mysql", "db2": "sqlserver"}


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

_IMAGES = (
    f"{field('source.schema', 'string')}, {field('source.table', 'string')}, {field('op', 'string')}, "
    f"to_json({field('before', 'variant')}), '|', to_json({field('after', 'variant')})"
)
_IMAGE = (
    f"md5(concat_ws('|', {_by_connector({name: one.image for name, one in CONNECTORS.items()}, 'NULL')}, {_IMAGES}))"
)
_NUMBERED_IMAGE = (
    f"md5(concat_ws('|', "
    f"{_by_connector({name: one.numbered_image or one.image for name, one in CONNECTORS.items()}, 'NULL')}, "
    f"{field('source.ts_ms', 'string')}, {_IMAGES}, '|', to_json({field('message', 'variant')})))"
)
TOTAL_ORDER = field("transaction.total_order", "bigint")
RECORD_ID = (
    f"CASE WHEN {TOTAL_ORDER} IS NULL THEN NULL "
    f"WHEN {_CONTINUES} THEN concat({TOTAL_ORDER}, '/', {_NUMBERED_IMAGE}) ELSE {_IMAGE} END"
)
"""What a row has in common with what a restart sends again of it, and with no other (but see sql/judge/runs.sql).

All that is known of it but the run: a database that was made anew has the ids of transactions that it had before, and
from 3.7 on with the same numbers in them; its rows are other ones, which are not to be dropped as duplicates.
"""

NUMBERED = f"coalesce({_CONTINUES}, false)"
"""Whether the row's number is for good: no other row of its transaction has it."""

COMMON = _by_connector({name: one.common for name, one in CONNECTORS.items()}, "CAST(NULL AS STRING)")
"""What all rows of one transaction have in common, where that is known: those that differ are of two of the same id."""

_RUN_HEADER = "CAST(array_position(headers.key, '__debezium.context.runId') AS INT) - 1"
RUN_NAME = f"coalesce(CAST(get(headers.value, {_RUN_HEADER}) AS STRING), '')"
"""Which run of the connector sent the row; empty before there was such a header."""

IS_MESSAGE = f"{field('op', 'string')} = 'm'"
"""Whether the row is a logical message: those never have such a header."""

IS_TRUNCATION = f"coalesce({field('op', 'string')} = 't', false)"
"""Whether the record says that all rows of a table are gone: it has no key, and no images."""

RUN = f"CASE WHEN {IS_MESSAGE} THEN 'any' ELSE {RUN_NAME} END"
"""The run by its name, where a row has to have one: any may have sent a logical message."""


OF_MONGODB = f"{field('source.connector', 'string')} = 'mongodb'"
"""Whether a row's images are texts of Extended JSON."""
_DATE = r'\{\s*"\$date"\s*:\s*(-?[0-9]+)\s*\}'
_PLAIN = (
    # {"$numberLong": "5"} and its kin become the number; a decimal that VARIANT cannot keep exactly stays text
    (r'\{\s*"\$number(?:Int|Long)"\s*:\s*"(-?[0-9]+)"\s*\}', "$1"),
    (r'\{\s*"\$numberDouble"\s*:\s*"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"\s*\}', "$1"),
    (r'\{\s*"\$numberDecimal"\s*:\s*"(?=[-0-9.]{1,38}")(-?[0-9]+(?:\.[0-9]+)?)"\s*\}', "$1"),
    (r'\{\s*"\$(?:numberDouble|numberDecimal|oid|uuid|symbol|date)"\s*:\s*("[^"]*")\s*\}', "$1"),
    # version 1 and version 2 of Extended JSON
    (r'\{\s*"\$binary"\s*:\s*("[^"]*")\s*,\s*"\$type"\s*:\s*"[^"]*"\s*\}', "$1"),
    (r'\{\s*"\$binary"\s*:\s*\{\s*"base64"\s*:\s*("[^"]*")\s*,\s*"subType"\s*:\s*"[^"]*"\s*\}\s*\}', "$1"),
)
"""What stands in Extended JSON for a value, and what of it is the value.

A text in JSON has a backslash before each of its quotes, so none of these patterns matches within one."""


def plain_json(text: str) -> str:
    """Of MongoDB's Extended JSON (a text) the same in JSON: numbers as numbers, dates and ids as texts.

    A date becomes ISO 8601 in UTC, which casts to TIMESTAMP. What JSON has no value for ($timestamp, $regex, $minKey,
    a date beyond the years 1 to 9999) stays an object.
    """
    plain = "t"
    for pattern, value in _PLAIN:
        plain = f"regexp_replace({plain}, {literal(pattern)}, {literal(value)})"
    millis = "try_cast(ms AS BIGINT)"
    iso = f"date_format(timestamp_millis({millis}), {literal(_ISO)})"
    date = (
        f"CASE WHEN {millis} BETWEEN -62135596800000 AND 253402300799999 THEN concat('\"', {iso}, '\"') "
        "ELSE concat('{\"$date\": ', ms, '}') END"
    )
    dates = f"transform(regexp_extract_all(t, {literal(_DATE)}, 1), ms -> {date})"
    joined = f"zip_with(split(t, {literal(_DATE)}), concat({dates}, array('')), (between, d) -> concat(between, d))"
    with_dates = f"CASE WHEN contains(t, '\"$date\"') THEN array_join({joined}, '') ELSE t END"
    whole = _let(plain, with_dates)
    return _let(text, f"CASE WHEN contains(t, '\"$') THEN {whole} ELSE t END")


_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def _let(value: str, expression: str) -> str:
    """The expression with `t` for the value, which is made once."""
    return f"get(transform(array({value}), t -> {expression}), 0)"


def _document(path: str) -> str:
    """MongoDB's image, a text of Extended JSON; SQL NULL where there is none, or it is no JSON."""
    return f"try_parse_json({plain_json(field(path, 'string'))})"


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
    # null where it is no time that a timestamp can have, as timestamp_millis would fail on it
    "ts": f"timestamp_micros(try_multiply(try_{field('ts_ms', 'bigint')}, 1000L))",
    "_order": ORDER,
    "left_out": f"coalesce({LEFT_OUT}, CAST(array() AS ARRAY<STRING>))",
    "old_key": OLD_KEY_VALUE,
}
"""The columns that rules see of an envelope, beside those of every record; `row` is the newest image there is.

`left_out` has the names of the fields that the connector left out, which are null in the images; `old_key` the key that
the row had, where an update changed it."""

_KEY_ID = "coalesce(try_variant_get(key, '$.id', 'string'), try_variant_get(key, '$.payload.id', 'string'))"
_KEY_DOCUMENT = f"try_parse_json(concat('{{\"_id\": ', {plain_json(_KEY_ID)}, '}}'))"
"""What MongoDB says of a document that was deleted: the `_id` in the record's key."""


def with_documents(view: dict[str, str]) -> dict[str, str]:
    """The columns of VIEW where documents of MongoDB may be among the rows.

    Apart from VIEW, because a projection with a lambda (CodegenFallback) is left out of whole-stage code generation.
    """
    before, after = _document("before"), _document("after")
    documents = {"before": before, "after": after, "row": f"coalesce({after}, {before}, {_KEY_DOCUMENT})"}
    return view | {
        column: f"CASE WHEN {OF_MONGODB} THEN {document} ELSE {view[column]} END"
        for column, document in documents.items()
    }


def typed(value: str) -> dict[str, str]:
    """The columns of VIEW that are structs where the topic has a schema, `value` being the envelope by it."""
    before, after = (f"coalesce({value}.payload.{image}, {value}.{image})" for image in ("before", "after"))
    return {"before": before, "after": after, "row": f"coalesce({after}, {before})"}


def transaction_id(topic: str, connector: str = "") -> str:
    """The transaction of a record of the preset's topics, `topic` being that of BEGIN and END; null for none.

    `connector`: what stands before it, where there are several.
    """
    own, rows = field("id", "string"), field("transaction.id", "string")
    text = f"CASE WHEN topic = {literal(topic)} THEN {own} ELSE {rows} END"
    for one in CONNECTORS.values():
        if one.identity:
            text = f"regexp_replace({text}, '{one.identity}', '$1')"
    return f"concat({literal(f'{connector}/')}, {text})" if connector else text


def around(schema: str) -> str:
    """The schema (DDL) of an envelope around rows of that schema."""
    row = f"STRUCT<{schema}>"
    return f"before {row}, after {row}, payload STRUCT<before: {row}, after: {row}>"


def _object_or_null(path: str) -> str:
    found = field(path, "variant")
    return f"coalesce(is_variant_null({found}) OR startswith(schema_of_variant({found}), 'OBJECT'), false)"


_IS_ENVELOPE = (
    f"({field('op', 'string')} IS NOT NULL AND ({field('source.connector', 'string')} IS NOT NULL "
    f"OR {_object_or_null('before')} OR {_object_or_null('after')}))"
)
"""An `op` alone may be a column of a flattened row's."""
_IS_NO_ENVELOPE = (
    "value is no envelope of Debezium (op beside before, after or source): does ExtractNewRecordState, or another "
    "transform, flatten it? Take that out of the connector's config"
)
_HAS_NO_IMAGE = (
    "an update without the row: MongoDB tells the changed fields alone with capture.mode=change_streams, and with "
    "change_streams_update_full where the document is gone by then: say capture.mode=change_streams_update_full, and "
    "capture.mode.full.update.type=post_image"
)
_HAS_NO_ROW = "an insert (op c or r) without the row in after: does a transform take it out?"
_IS_NO_DOCUMENT = "the document is no JSON (a double that is NaN or infinite, in json.serialization.mode=legacy?)"


def no_envelope(config: Config) -> str:
    """Why a record is none of a connector's, or not a whole one.

    None of a connector's: flattened, say, by a transform on its way. Only of tables by the name that the config or a
    rule has for them, for topics that merely have the prefix may be anything, as heartbeats are.
    """
    covered = [name for name, one in config.topics.items() if one.envelope]
    if not covered:
        return "CAST(NULL AS STRING)"
    tables = [name for name in covered if not name.startswith("^")]
    op = field("op", "string")
    no_row = f"coalesce(is_variant_null({field('after', 'variant')}), true)"
    no_document = " OR ".join(  # without plain_json, whose lambdas keep whole-stage code generation away from all rows
        f"{text} IS NOT NULL AND try_parse_json({text}) IS NULL"
        for text in (field("after", "string"), field("before", "string"))
    )
    return (
        f"CASE WHEN value IS NULL OR NOT {claimed_by(config, covered)} THEN NULL "
        f"WHEN NOT {_IS_ENVELOPE} THEN CASE WHEN {claimed_by(config, tables)} THEN {literal(_IS_NO_ENVELOPE)} END "
        f"WHEN {op} = 'u' AND {no_row} THEN {literal(_HAS_NO_IMAGE)} "
        f"WHEN {op} IN ('c', 'r') AND {no_row} THEN {literal(_HAS_NO_ROW)} "
        f"WHEN {OF_MONGODB} AND ({no_document}) THEN {literal(_IS_NO_DOCUMENT)} END"
    )
