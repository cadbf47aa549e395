"""What the bytes of keys and values are, by topic: text that is JSON, or what another format makes of them."""

from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf

from zync.config.model import Config, Part
from zync.config.topics import by_topic, claimed_by
from zync.errors import UsageError
from zync.formats.decode.avro import avro_of_file
from zync.formats.decode.connect_json import Connect, understand, without_schema
from zync.formats.wire_format import (
    KINDS,
    Framed,
    body,
    has_guid,
    is_framed,
    names,
    schema_id,
    schema_name,
    schemas,
    with_header,
    with_header_column,
)
from zync.spark.frames import select
from zync.sql import literal
from zync.text import byte_size

_UNPACKED_MOST = 256 * 1024 * 1024
"""What a compressed value may have at most when it is unpacked, in bytes."""


@dataclass(frozen=True)
class _Decoding:
    """Expressions: text that is yet to be parsed as JSON; what was decoded (VARIANT); why nothing can be."""

    text: str = "CAST(NULL AS STRING)"
    found: str = "CAST(NULL AS VARIANT)"
    fault: str = "CAST(NULL AS STRING)"


def unpack(spark: SparkSession, rows: DataFrame, config: Config) -> DataFrame:
    """The rows of raw with what their topics' formats make of `key` and `value`.

    For each of the two, columns `…_text` (text that is yet to be parsed as JSON; null where another format decodes),
    `…_found` (VARIANT: what another format decoded) and `…_fault` (why it cannot be decoded). ZyncError where the
    schema registry does not answer.
    """
    rows = select(rows, "*", "kafka.topic AS topic", "value AS unpacked")
    packed = [topic for topic, one in config.topics.items() if one.compression == "gzip"]
    if packed:
        mine = sf.expr(claimed_by(config, packed))  # within: Spark gives Python every row, whatever is around it
        rows = rows.withColumn(
            "unpacked", sf.when(mine, _gunzip(sf.when(mine, sf.col("value")))).otherwise(sf.col("value"))
        )
    return _decoded(spark, _decoded(spark, rows, config, "key", "key"), config, "value", "unpacked")


def _decoded(spark: SparkSession, rows: DataFrame, config: Config, part: Part, column: str) -> DataFrame:
    """The rows with the columns of `part`, whose bytes are in `column`."""
    columns, decodings = rows.columns, dict[str, _Decoding]()
    framed: dict[str, list[str]] = {}
    connect: list[str] = []
    for number, (topic, one) in enumerate(config.topics.items()):
        kind, avro = config.format(one, part), f"found_{number}"
        if kind == "avro" and (file := one.schema_file(part)):
            rows = rows.withColumn(avro, avro_of_file(spark, column, file, one.schema_texts[part]))
            says = literal(f"{part} is not Avro as {file.name} says")
            decodings[topic] = _Decoding(
                found=f"CASE WHEN {column} IS NOT NULL THEN {avro}.v END",
                fault=f"CASE WHEN {column} IS NOT NULL AND {avro} IS NULL THEN {says} END",
            )
        elif kind in KINDS:
            framed.setdefault(kind, []).append(topic)
        elif kind == "connect-json":
            connect.append(topic)
        else:
            decodings[topic] = _plain(kind, part, column)
    for registered, topics in framed.items():
        rows, decoding = _registered(spark, rows, config, registered, claimed_by(config, topics), part, column)
        decodings |= dict.fromkeys(topics, decoding)
    if connect:
        mine = claimed_by(config, connect)
        rows = select(rows, "*", f"CASE WHEN {mine} THEN CAST({column} AS STRING) END AS connect_text")
        rows, decoding = _connect(rows, understand(spark, rows.where(mine), "connect_text", "connect_rest"), part)
        decodings |= dict.fromkeys(connect, decoding)
    for topic, one in config.topics.items() if part == "value" else ():
        if one.compression == "gzip":
            at = decodings[topic]
            not_so = f"value is not gzip, or has more than {byte_size(_UNPACKED_MOST)} in it"
            fault = f"CASE WHEN value IS NOT NULL AND {column} IS NULL THEN {literal(not_so)} ELSE {at.fault} END"
            decodings[topic] = replace(at, fault=fault)
    expressions = {
        "text": by_topic(config, {topic: one.text for topic, one in decodings.items()}, f"CAST({column} AS STRING)"),
        "found": by_topic(config, {topic: one.found for topic, one in decodings.items()}),
        "fault": by_topic(config, {topic: one.fault for topic, one in decodings.items()}),
    }
    if set(decodings.values()) <= {_plain("json", part, column)}:  # as most are: nothing to tell apart
        expressions = vars(_plain("json", part, column))
    return select(rows, *columns, *(f"{text} AS {part}_{what}" for what, text in expressions.items()))


def _registered(
    spark: SparkSession, rows: DataFrame, config: Config, kind: str, mine: str, part: Part, column: str
) -> tuple[DataFrame, _Decoding]:
    """The rows, of which those that are `mine` name schemas of a registry; and how to decode by these."""
    if config.registry is None:
        msg = f"topics of format {kind} need a schema registry: say registry.url in the config"
        raise UsageError(msg)
    its = schemas(spark, rows.where(mine), config.registry, kind, part, column)
    if its.in_headers:
        rows = rows.withColumn(with_header_column(part), sf.expr(with_header(part, column)))
        column = with_header_column(part)
    if kind != "json-schema":
        rows = rows.withColumn(f"found_{kind}", its.found(column))
    return rows, _framed(its, kind, part, column)


def _plain(kind: str, part: Part, column: str) -> _Decoding:
    """Of bytes that say themselves what they are."""
    text = f"CAST({column} AS STRING)"
    if kind == "bytes":
        return _Decoding(found=f"CAST({column} AS VARIANT)")
    if kind == "string":
        valid = f"is_valid_utf8({text})"
        return _Decoding(
            found=f"CASE WHEN {valid} THEN CAST({text} AS VARIANT) END",
            fault=f"CASE WHEN NOT {valid} THEN '{part} is not UTF-8' END",
        )
    return _Decoding(text=text)


def _framed(registered: Framed, kind: str, part: Part, column: str) -> _Decoding:
    """Of bytes that a schema registry's clients wrote."""
    guids = registered.in_headers
    problems = "".join(
        f" WHEN {number} THEN {literal(why)}" for number, why in registered.problems.items() if isinstance(number, int)
    )
    by_guid = "".join(
        f" WHEN {names(guid, column)} THEN {literal(why)}"
        for guid, why in registered.problems.items()
        if isinstance(guid, str)
    )
    problem = f"CASE {schema_id(column)} WHEN -1 THEN NULL{problems} END"
    problem = f"CASE{by_guid} ELSE {problem} END" if by_guid else problem
    its_name = schema_name(column) if guids else schema_id(column)
    unframed = f"{part} does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
    decoded = f"found_{kind}"
    name = {"avro": "Avro", "protobuf": "protobuf"}.get(kind)
    not_so = f"CASE WHEN {decoded} IS NULL THEN concat('{part} is not {name} as schema ', {its_name}, ' says') END"
    fault = (
        f"CASE WHEN {column} IS NULL THEN NULL WHEN NOT ({is_framed(column, by_guid=guids)}) THEN {literal(unframed)} "
        f"ELSE coalesce({problem}, {not_so if name else 'NULL'}) END"
    )
    if name:
        return _Decoding(found=f"CASE WHEN {column} IS NOT NULL THEN {decoded}.v END", fault=fault)
    text = f"CASE WHEN {is_framed(column)} THEN CAST({body(column)} AS STRING) END"
    if guids:
        text = f"CASE WHEN {has_guid(column)} THEN CAST({body(column, by_guid=True)} AS STRING) ELSE {text} END"
    return _Decoding(text=text, fault=fault)


def _connect(rows: DataFrame, schemas: Connect, part: Part) -> tuple[DataFrame, _Decoding]:
    """The rows with what their column `connect_text` means by the schemas in it, and how to decode by that."""
    rows = rows.withColumn("connect_schema", sf.expr(schemas.schema_of("connect_text")))
    rows = rows.withColumn("connect_rest", sf.expr(without_schema("connect_text", "connect_schema")))
    payload = "try_variant_get(try_parse_json(connect_rest), '$.payload', 'variant')"
    found = sf.expr(f"CASE WHEN connect_schema IS NULL AND {payload} IS NOT NULL THEN struct({payload} AS v) END")
    for text, decoded in schemas.columns.items():
        found = sf.when(sf.expr(f"connect_schema = {literal(text)}"), decoded).otherwise(found)
    # A schema lets pass what is no JSON, or says a key twice: it takes one of them, and stops at the payload's end.
    mark = "xxhash64(connect_rest)"  # behind one JSON value, as in sql/decode/decode.sql
    marked = f"try_variant_get(try_parse_json('[' || connect_rest || ',' || {mark} || ']'), '$[1]', 'bigint') = {mark}"
    rows = rows.withColumn("connect_whole", sf.expr(f"coalesce({marked}, false)"))
    found = sf.when(sf.expr("is_valid_utf8(connect_text) AND connect_whole"), found)
    problems = "".join(f" WHEN {literal(text)} THEN {literal(why)}" for text, why in schemas.problems.items())
    fault = (
        "CASE WHEN connect_text IS NULL OR connect_found IS NOT NULL THEN NULL "
        f"WHEN NOT connect_whole THEN '{part} is not one JSON value' "
        f"ELSE coalesce(CASE connect_schema WHEN '' THEN NULL{problems} END, CASE WHEN {payload} IS NULL "
        f"THEN '{part} is not an object with schema and payload, as Connect writes it' "
        f"ELSE '{part} is not as the schema beside it says' END) END"
    )
    decoding = _Decoding(found="CASE WHEN connect_text IS NOT NULL THEN connect_found.v END", fault=fault)
    return rows.withColumn("connect_found", found), decoding


def _gunzip(column: Column) -> Column:
    """What was compressed by gzip; null for what was not, or would be too large. In Python: Spark has no way."""
    import zlib  # noqa: PLC0415

    import pyarrow as pa  # noqa: PLC0415

    most, of_gzip = _UNPACKED_MOST, 16 + zlib.MAX_WBITS

    def gunzip(values: pa.Array) -> pa.Array:  # sent to where there may be no zync, so all it needs is in here

        def one(data: bytes) -> bytes | None:
            found = b""
            try:
                while len(found) <= most:  # members may stand behind each other, zeroes behind them: RFC 1952, 2.2
                    member = zlib.decompressobj(of_gzip)
                    found += member.decompress(data, most + 1 - len(found))
                    data = member.unused_data.lstrip(b"\0")
                    if not (member.eof and data):
                        return found if member.eof and len(found) <= most else None
            except zlib.error:
                pass
            return None

        return pa.array([None if value is None else one(value) for value in values.to_pylist()], pa.binary())

    return cast("Column", arrow_udf(gunzip, "binary")(column))  # type: ignore[call-overload]
