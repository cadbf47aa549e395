"""SQL expressions over Debezium's records: the envelope of a row, and the BEGIN and END of a transaction."""

from dataclasses import dataclass
from typing import Any

from zync.config.model import Config
from zync.config.topics import claimed_by
from zync.debezium.unavailable import LEFT_OUT, OLD_KEY_VALUE
from zync.sql import literal

_WRAPPED = (
    "variant_get(value, '$.op', 'variant') IS NULL AND variant_get(value, '$.schema', 'variant') IS NOT NULL "
    "AND variant_get(value, '$.payload', 'variant') IS NOT NULL THEN variant_get(value, '$.payload', 'variant')"
)
BODY = f"CASE WHEN {_WRAPPED} ELSE value END"
"""SQL for a record's value without the JSON converter's `schema` and `payload` around it.

The field that rows have, `$.op`, is tested first. Spark handles a field that a VARIANT lacks by an exception inside
(VariantGet returns from within a loop): to test for `$.schema`, which few records have, took a fifth of a sync."""
BODY_BY_TEXT = f"CASE WHEN contains(value_text, '\"payload\"') IS NOT FALSE AND {_WRAPPED} ELSE value END"
"""The same for records that may have their value's text in `value_text`, which is tested before the VARIANT."""


def field(path: str, field_type: str) -> str:
    """Returns SQL for the body's field at `path`, cast to that type; null if the body does not have it."""
    return f"variant_get(body, '$.{path}', '{field_type}')"


@dataclass(frozen=True)
class Connector:
    """The differences between connectors.

    Attributes:
        identity: A pattern of transaction ids whose first group identifies the transaction; None: the whole id does.
        source_position: A number in the row's `source` that rises in the source's order; 0 if only total_order does.
        image: Fields of `source` that, in addition to the row's images, tell two rows of the same transaction apart.
        numbered_unless: A field of `source`. Where a row has it, the fields of `image` change when the row is sent
            again; so they do not count if its `total_order` is final. None: no such field.
        common: A value that all rows of a transaction share, and that another transaction with the same id hardly has.
    """

    identity: str | None
    source_position: str
    image: tuple[str, ...]
    numbered_unless: str | None = None
    common: str = "CAST(NULL AS STRING)"


CONNECTORS = {
    # the id is txId:LSN; BEGIN, each row and END have different LSNs
    "postgresql": Connector(
        "^([0-9]+):[0-9]+$",
        field("source.lsn", "bigint"),
        ("lsn",),
        common=field("source.ts_ms", "string"),  # of the commit
    ),
    # The id is a GTID, or file=…,pos=… of the transaction's begin. With a GTID another replica may send the row again,
    # whose binlog has other positions.
    "mysql": Connector(None, "0L", ("file", "pos", "row"), numbered_unless="gtid"),
    # the id is the commit LSN, like 00000025:00000d08:0025; END comes only when the next transaction begins
    "sqlserver": Connector(None, "0L", ("change_lsn", "event_serial_no")),
    # the id is the transaction's number in hexadecimal
    "oracle": Connector(None, "0L", ("scn", "rs_id", "ssn")),
    # the id is lsid:txnNumber, as {"id": {"$binary": …}, …}:5; END comes only with the next event
    "mongodb": Connector(None, "0L", ("ts_ms", "ord")),
}
"""The connectors that zync knows, in addition to those in `_SAME_AS`. Rows of others are told apart by their images.

The transaction id of Vitess is a VGTID, that of Db2 the commit LSN, that of Informix (as of PostgreSQL) txId:LSN.
"""

_SAME_AS = {"mariadb": "mysql", "db2": "sqlserver"}


def connector_of_source(source: dict[str, Any]) -> Connector | None:
    """Returns the connector that sent a row with this `source`; None if zync does not know it."""
    name = str(source.get("connector"))
    return CONNECTORS.get(_SAME_AS.get(name, name))


def _by_connector(expressions: dict[str, str], otherwise: str) -> str:
    """Returns SQL for the expression of the row's connector."""
    all_expressions = {**expressions, **{name: expressions[model] for name, model in _SAME_AS.items()}}
    cases = " ".join(f"WHEN '{name}' THEN {expression}" for name, expression in all_expressions.items())
    return f"CASE {field('source.connector', 'string')} {cases} ELSE {otherwise} END"


SOURCE_POSITION = _by_connector({name: connector.source_position for name, connector in CONNECTORS.items()}, "0L")
"""SQL for a row's position in the source's order; between rows with the same position `total_order` decides."""

ORDER = f"named_struct('place', {SOURCE_POSITION}, 'total_order', {field('transaction.total_order', 'bigint')})"
"""SQL for the column `_order` of the views."""

_VERSION = field("source.version", "string")
CONTINUES_SINCE = (3, 7)
"""The version of Debezium from which on total_order continues after a restart inside a transaction."""
_CONTINUES = (
    f"(try_cast(split_part({_VERSION}, '.', 1) AS INT), try_cast(split_part({_VERSION}, '.', 2) AS INT)) "
    f">= {CONTINUES_SINCE}"
)
"""SQL: whether total_order continues after a restart inside a transaction, and so tells its rows apart."""

_IMAGES = (
    f"{field('source.schema', 'string')}, {field('source.table', 'string')}, {field('op', 'string')}, "
    f"to_json({field('before', 'variant')}), '|', to_json({field('after', 'variant')})"
)


def _joined(fields: tuple[str, ...]) -> str:
    """Returns SQL for fields of `source` as a text."""
    first, *others = [field(f"source.{name}", "string") for name in fields]
    return f"concat_ws('/', {', '.join([first, *others])})" if others else first


def _numbered(connector: Connector) -> str:
    """Returns SQL for the fields that tell a row with a final `total_order` apart."""
    if connector.numbered_unless is None:
        return _joined(connector.image)
    condition = field(f"source.{connector.numbered_unless}", "string")
    return f"CASE WHEN {condition} IS NULL THEN {_joined(connector.image)} END"


_IMAGE_FIELDS = {name: _joined(connector.image) for name, connector in CONNECTORS.items()}
_NUMBERED_IMAGE_FIELDS = {name: _numbered(connector) for name, connector in CONNECTORS.items()}
_IMAGE = f"md5(concat_ws('|', {_by_connector(_IMAGE_FIELDS, 'NULL')}, {_IMAGES}))"
_NUMBERED_IMAGE = (
    f"md5(concat_ws('|', {_by_connector(_NUMBERED_IMAGE_FIELDS, 'NULL')}, "
    f"{field('source.ts_ms', 'string')}, {_IMAGES}, '|', to_json({field('message', 'variant')})))"
)
TOTAL_ORDER = field("transaction.total_order", "bigint")
RECORD_ID = (
    f"CASE WHEN {TOTAL_ORDER} IS NULL THEN NULL "
    f"WHEN {_CONTINUES} THEN concat({TOTAL_ORDER}, '/', {_NUMBERED_IMAGE}) ELSE {_IMAGE} END"
)
"""SQL for a row's record id: the same for a row and its repeats after a restart, and for no other row.

(Exceptions: sql/judge/runs.sql.) It covers all that is known of a row but the run. A database that was recreated uses
its former transaction ids again, and from Debezium 3.7 on with the same numbers in them; its rows are different, and
must not be dropped as duplicates.
"""

NUMBERED = f"coalesce({_CONTINUES}, false)"
"""SQL: whether the row's total_order is final: no other row of its transaction has it."""

COMMON = _by_connector({name: connector.common for name, connector in CONNECTORS.items()}, "CAST(NULL AS STRING)")
"""SQL for a value that all rows of a transaction share, or null: rows with different values are of two transactions."""

RUN_HEADER = "__debezium.context.runId"
"""The header that names the run of the connector."""
_RUN_HEADER = f"CAST(array_position(headers.key, '{RUN_HEADER}') AS INT) - 1"
RUN_NAME = f"coalesce(CAST(get(headers.value, {_RUN_HEADER}) AS STRING), '')"
"""SQL for the run of the connector that sent the row; empty for versions of Debezium without that header."""

IS_MESSAGE = f"{field('op', 'string')} = 'm'"
"""SQL: whether the row is a logical message; these never have the run's header."""

IS_TRUNCATION = f"coalesce({field('op', 'string')} = 't', false)"
"""SQL: whether the record is a TRUNCATE, which has no key and no images."""

RUN = f"CASE WHEN {IS_MESSAGE} THEN 'any' ELSE {RUN_NAME} END"
"""SQL for the run by name; `any` for a logical message, as any run may have sent it."""


OF_MONGODB = f"{field('source.connector', 'string')} = 'mongodb'"
"""SQL: whether a row's images are texts of MongoDB's Extended JSON."""
_DATE = r'\{\s*"\$date"\s*:\s*(-?[0-9]+)\s*\}'
_PLAIN = (
    # {"$numberLong": "5"} and the like become the number; a decimal that VARIANT cannot hold exactly stays a text
    (r'\{\s*"\$number(?:Int|Long)"\s*:\s*"(-?[0-9]+)"\s*\}', "$1"),
    (r'\{\s*"\$numberDouble"\s*:\s*"(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"\s*\}', "$1"),
    (r'\{\s*"\$numberDecimal"\s*:\s*"(?=[-0-9.]{1,38}")(-?[0-9]+(?:\.[0-9]+)?)"\s*\}', "$1"),
    (r'\{\s*"\$(?:numberDouble|numberDecimal|oid|uuid|symbol|date)"\s*:\s*("[^"]*")\s*\}', "$1"),
    # version 1 and version 2 of Extended JSON
    (r'\{\s*"\$binary"\s*:\s*("[^"]*")\s*,\s*"\$type"\s*:\s*"[^"]*"\s*\}', "$1"),
    (r'\{\s*"\$binary"\s*:\s*\{\s*"base64"\s*:\s*("[^"]*")\s*,\s*"subType"\s*:\s*"[^"]*"\s*\}\s*\}', "$1"),
)
"""Patterns of values in Extended JSON, each with its replacement in JSON.

JSON escapes quotes inside a text by a backslash, so none of these patterns matches within a text."""


def plain_json(text: str) -> str:
    """Returns SQL that converts MongoDB's Extended JSON into JSON: numbers as numbers, dates and ids as texts.

    A date becomes ISO 8601 in UTC, which casts to TIMESTAMP. Values that JSON cannot express ($timestamp, $regex,
    $minKey, a date outside the years 1 to 9999) stay objects.

    Args:
        text: SQL for the Extended JSON.
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
    converted = _let(plain, with_dates)
    return _let(text, f"CASE WHEN contains(t, '\"$') THEN {converted} ELSE t END")


_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"


def _let(value: str, expression: str) -> str:
    """Returns SQL for the expression, in which `t` is the value; the value is evaluated once."""
    return f"get(transform(array({value}), t -> {expression}), 0)"


def _document(path: str) -> str:
    """Returns SQL for MongoDB's image, a text of Extended JSON, as VARIANT; null if it is missing or invalid."""
    return f"try_parse_json({plain_json(field(path, 'string'))})"


def _image(path: str) -> str:
    """Returns SQL for a row's image; SQL NULL instead of JSON's null."""
    image = field(path, "variant")
    return f"CASE WHEN NOT is_variant_null({image}) THEN {image} END"


VIEW = {
    "op": field("op", "string"),
    "before": _image("before"),
    "after": _image("after"),
    "row": f"coalesce({_image('after')}, {_image('before')})",
    "source": field("source", "variant"),
    # null for a time outside the range of TIMESTAMP, on which timestamp_millis would fail
    "ts": f"timestamp_micros(try_multiply(try_{field('ts_ms', 'bigint')}, 1000L))",
    "_order": ORDER,
    "left_out": f"coalesce({LEFT_OUT}, CAST(array() AS ARRAY<STRING>))",
    "old_key": OLD_KEY_VALUE,
}
"""SQL for the columns of an envelope that the views add to those of every record.

`row` is the newest image: `after`, or `before` of a delete. `left_out` has the names of the fields that the connector
left out, which are null in the images. `old_key` is the key that the row had before an update changed it."""

_KEY_ID = "coalesce(try_variant_get(key, '$.id', 'string'), try_variant_get(key, '$.payload.id', 'string'))"
_KEY_DOCUMENT = f"try_parse_json(concat('{{\"_id\": ', {plain_json(_KEY_ID)}, '}}'))"
"""SQL for a deleted MongoDB document, of which only the `_id` in the record's key is known."""


def with_documents(view: dict[str, str]) -> dict[str, str]:
    """Returns the columns of VIEW for rows that may include MongoDB documents.

    VIEW itself has no lambdas, because Spark excludes a projection with a lambda (CodegenFallback) from whole-stage
    code generation.

    Args:
        view: The columns of VIEW.
    """
    before, after = _document("before"), _document("after")
    documents = {"before": before, "after": after, "row": f"coalesce({after}, {before}, {_KEY_DOCUMENT})"}
    return view | {
        column: f"CASE WHEN {OF_MONGODB} THEN {document} ELSE {view[column]} END"
        for column, document in documents.items()
    }


def typed(value: str) -> dict[str, str]:
    """Returns the columns of VIEW that are structs if the topic has a schema.

    Args:
        value: SQL for the envelope, parsed by that schema.
    """
    before, after = (f"coalesce({value}.payload.{image}, {value}.{image})" for image in ("before", "after"))
    return {"before": before, "after": after, "row": f"coalesce({after}, {before})"}


def transaction_id(topic: str, connector: str = "") -> str:
    """Returns SQL for the transaction id of a record; null without a transaction.

    Args:
        topic: The connector's topic of BEGIN and END.
        connector: A prefix of the id, if the config has several connectors.
    """
    end_id, row_id = field("id", "string"), field("transaction.id", "string")
    text = f"CASE WHEN topic = {literal(topic)} THEN {end_id} ELSE {row_id} END"
    for known_connector in CONNECTORS.values():
        if known_connector.identity:
            text = f"regexp_replace({text}, '{known_connector.identity}', '$1')"
    return f"concat({literal(f'{connector}/')}, {text})" if connector else text


def around(schema: str) -> str:
    """Returns the schema (DDL) of an envelope whose images have that schema (DDL)."""
    row = f"STRUCT<{schema}>"
    return f"before {row}, after {row}, payload STRUCT<before: {row}, after: {row}>"


def _object_or_null(path: str) -> str:
    """Returns the condition that the body has a field at `path` that is an object or JSON's null."""
    value = field(path, "variant")
    return f"coalesce(is_variant_null({value}) OR startswith(schema_of_variant({value}), 'OBJECT'), false)"


_IS_ENVELOPE = (
    f"({field('op', 'string')} IS NOT NULL AND ({field('source.connector', 'string')} IS NOT NULL "
    f"OR {_object_or_null('before')} OR {_object_or_null('after')}))"
)
"""SQL: whether the record is an envelope. An `op` alone does not tell: a flattened row may have such a column."""
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
    """Returns SQL for the reason why a record is not a complete envelope of a connector; null if it is.

    A transform may have flattened it, for example. That is checked only for tables that the config or a rule names:
    topics that merely have the prefix may have other records, as heartbeats.
    """
    covered = [name for name, topic in config.topics.items() if topic.envelope]
    if not covered:
        return "CAST(NULL AS STRING)"
    tables = [name for name in covered if not name.startswith("^")]
    op = field("op", "string")
    has_no_row = f"coalesce(is_variant_null({field('after', 'variant')}), true)"
    is_no_document = " OR ".join(  # without plain_json, whose lambdas prevent whole-stage code generation
        f"{text} IS NOT NULL AND try_parse_json({text}) IS NULL"
        for text in (field("after", "string"), field("before", "string"))
    )
    return (
        f"CASE WHEN value IS NULL OR NOT {claimed_by(config, covered)} THEN NULL "
        f"WHEN NOT {_IS_ENVELOPE} THEN CASE WHEN {claimed_by(config, tables)} THEN {literal(_IS_NO_ENVELOPE)} END "
        f"WHEN {op} = 'u' AND {has_no_row} THEN {literal(_HAS_NO_IMAGE)} "
        f"WHEN {op} IN ('c', 'r') AND {has_no_row} THEN {literal(_HAS_NO_ROW)} "
        f"WHEN {OF_MONGODB} AND ({is_no_document}) THEN {literal(_IS_NO_DOCUMENT)} END"
    )
