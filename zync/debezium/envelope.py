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
"""What a row has in common with what a restart sends again of it, and with no other (but see sql/judge/runs.sql)."""

NUMBERED = f"coalesce({_CONTINUES}, false)"
"""Whether RECORD_ID is the row's number."""

_RUN_HEADER = "CAST(array_position(headers.key, '__debezium.context.runId') AS INT) - 1"
RUN_NAME = f"coalesce(CAST(get(headers.value, {_RUN_HEADER}) AS STRING), '')"
"""Which run of the connector sent the row; empty before there was such a header."""

IS_MESSAGE = f"{field('op', 'string')} = 'm'"
"""Whether the row is a logical message: those never have such a header."""

RUN = f"CASE WHEN {IS_MESSAGE} THEN 'any' ELSE {RUN_NAME} END"
"""The run by its name, where a row has to have one: any may have sent a logical message."""


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
    "left_out": f"coalesce({LEFT_OUT}, CAST(array() AS ARRAY<STRING>))",
    "old_key": OLD_KEY_VALUE,
}
"""The columns that rules see of an envelope, beside those of every record; `row` is the newest image there is.

`left_out` has the names of the fields that the connector left out, which are null in the images; `old_key` the key that
the row had, where an update changed it."""


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


def around(schema: str) -> str:
    """The schema (DDL) of an envelope around rows of that schema."""
    row = f"STRUCT<{schema}>"
    return f"before {row}, after {row}, payload STRUCT<before: {row}, after: {row}>"


def no_envelope(config: Config) -> str:
    """Whether a record of a table, by the name that the config or a rule has for it, is none of a connector's.

    Flattened, say, by a transform on its way. Topics that merely have the prefix may be anything, as heartbeats are.
    """
    tables = [name for name, one in config.topics.items() if one.envelope and not name.startswith("^")]
    if not tables:
        return "false"
    return f"{claimed_by(config, tables)} AND value IS NOT NULL AND {field('op', 'string')} IS NULL"
