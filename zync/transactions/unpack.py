"""Decodes the bytes of keys and values by their topic's format. JSON stays text here."""

from dataclasses import dataclass, replace
from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf

from zync.config.model import Config, Part
from zync.config.topics import by_topic, claimed_by
from zync.errors import UsageError
from zync.formats.decode.avro import avro_of_file
from zync.formats.decode.connect_json import ConnectSchemas, read_schemas, without_schema
from zync.formats.wire_format import (
    KINDS,
    RegistrySchemas,
    body,
    has_guid,
    has_schema,
    is_framed,
    schema_id,
    schema_name,
    schemas_of,
    with_schema_header,
    with_schema_header_column,
)
from zync.spark.frames import select
from zync.sql import literal
from zync.text import byte_size

_UNPACKED_MOST = 256 * 1024 * 1024
"""The most bytes that a compressed value may have when it is unpacked."""


@dataclass(frozen=True)
class _Decoding:
    """SQL that decodes a key or value.

    Attributes:
        text: text that is yet to be parsed as JSON.
        value: the decoded value (VARIANT).
        error: the error text where the bytes cannot be decoded.
    """

    text: str = "CAST(NULL AS STRING)"
    value: str = "CAST(NULL AS VARIANT)"
    error: str = "CAST(NULL AS STRING)"


def unpack(spark: SparkSession, rows: DataFrame, config: Config) -> DataFrame:
    """Returns the rows of raw with `key` and `value` decoded by their topic's formats.

    The new columns are, for key and value each:

    - `…_text`: text that is yet to be parsed as JSON; null where another format decodes.
    - `…_found`: the value that another format decoded (VARIANT).
    - `…_error`: the error text where the bytes cannot be decoded.

    Raises:
        ZyncError: the schema registry does not answer.
    """
    rows = select(rows, "*", "kafka.topic AS topic", "value AS unpacked")
    compressed = [name for name, topic in config.topics.items() if topic.compression == "gzip"]
    if compressed:
        claimed = sf.expr(claimed_by(config, compressed))
        # The inner condition keeps other topics' bytes from Python: Spark gives a UDF every row, also within a CASE.
        unpacked = _gunzip(sf.when(claimed, sf.col("value")))
        rows = rows.withColumn("unpacked", sf.when(claimed, unpacked).otherwise(sf.col("value")))
    return _decoded(spark, _decoded(spark, rows, config, "key", "key"), config, "value", "unpacked")


def _decoded(spark: SparkSession, rows: DataFrame, config: Config, part: Part, column: str) -> DataFrame:
    """Returns the rows with the new columns of `part`, whose bytes are in `column`."""
    columns, decodings = rows.columns, dict[str, _Decoding]()
    framed: dict[str, list[str]] = {}
    connect: list[str] = []
    for number, (name, topic) in enumerate(config.topics.items()):
        format_name, avro = config.format(topic, part), f"found_{number}"
        if format_name == "avro" and (file := topic.schema_file(part)):
            rows = rows.withColumn(avro, avro_of_file(spark, column, file, topic.schema_texts[part]))
            error_text = literal(f"{part} is not Avro as {file.name} says")
            decodings[name] = _Decoding(
                value=f"CASE WHEN {column} IS NOT NULL THEN {avro}.v END",
                error=f"CASE WHEN {column} IS NOT NULL AND {avro} IS NULL THEN {error_text} END",
            )
        elif format_name in KINDS:
            framed.setdefault(format_name, []).append(name)
        elif format_name == "connect-json":
            connect.append(name)
        else:
            decodings[name] = _plain(format_name, part, column)
    for framed_format, names in framed.items():
        rows, decoding = _registered(spark, rows, config, framed_format, claimed_by(config, names), part, column)
        decodings |= dict.fromkeys(names, decoding)
    if connect:
        is_claimed = claimed_by(config, connect)
        rows = select(rows, "*", f"CASE WHEN {is_claimed} THEN CAST({column} AS STRING) END AS connect_text")
        schemas = read_schemas(spark, rows.where(is_claimed), "connect_text", "connect_rest")
        rows, decoding = _connect(rows, schemas, part)
        decodings |= dict.fromkeys(connect, decoding)
    for name, topic in config.topics.items() if part == "value" else ():
        if topic.compression == "gzip":
            decoding = decodings[name]
            error_text = literal(f"value is not gzip, or has more than {byte_size(_UNPACKED_MOST)} in it")
            error = f"CASE WHEN value IS NOT NULL AND {column} IS NULL THEN {error_text} ELSE {decoding.error} END"
            decodings[name] = replace(decoding, error=error)
    plain_json = _plain("json", part, column)
    if set(decodings.values()) <= {plain_json}:  # most configs have JSON only, and need no CASE by topic
        texts, values, errors = plain_json.text, plain_json.value, plain_json.error
    else:
        decision_text = f"CAST({column} AS STRING)"
        texts = by_topic(config, {name: decoding.text for name, decoding in decodings.items()}, decision_text)
        values = by_topic(config, {name: decoding.value for name, decoding in decodings.items()})
        errors = by_topic(config, {name: decoding.error for name, decoding in decodings.items()})
    decoded = (f"{texts} AS {part}_text", f"{values} AS {part}_found", f"{errors} AS {part}_error")
    return select(rows, *columns, *decoded)


def _registered(
    spark: SparkSession, rows: DataFrame, config: Config, format_name: str, is_claimed: str, part: Part, column: str
) -> tuple[DataFrame, _Decoding]:
    """Returns the rows with columns that decode by the schema registry's schemas, and SQL that reads these columns.

    `is_claimed` is SQL that tells the rows whose schemas are in the registry.
    """
    if config.registry is None:
        msg = f"topics of format {format_name} need a schema registry: say registry.url in the config"
        raise UsageError(msg)
    schemas = schemas_of(spark, rows.where(is_claimed), config.registry, format_name, part, column)
    if schemas.in_headers:
        rows = rows.withColumn(with_schema_header_column(part), sf.expr(with_schema_header(part, column)))
        column = with_schema_header_column(part)
    if format_name != "json-schema":
        rows = rows.withColumn(f"found_{format_name}", schemas.decoded(column))
    return rows, _framed(schemas, format_name, part, column)


def _plain(format_name: str, part: Part, column: str) -> _Decoding:
    """Returns the decoding of bytes, strings and JSON, which need no schema."""
    text = f"CAST({column} AS STRING)"
    if format_name == "bytes":
        return _Decoding(value=f"CAST({column} AS VARIANT)")
    if format_name == "string":
        valid = f"is_valid_utf8({text})"
        return _Decoding(
            value=f"CASE WHEN {valid} THEN CAST({text} AS VARIANT) END",
            error=f"CASE WHEN NOT {valid} THEN '{part} is not UTF-8' END",
        )
    return _Decoding(text=text)


def _framed(schemas: RegistrySchemas, format_name: str, part: Part, column: str) -> _Decoding:
    """Returns the decoding of bytes in the wire format of a schema registry's clients."""
    guids = schemas.in_headers
    cases_by_id = "".join(
        f" WHEN {number} THEN {literal(error_text)}"
        for number, error_text in schemas.problems.items()
        if isinstance(number, int)
    )
    cases_by_guid = "".join(
        f" WHEN {has_schema(guid, column)} THEN {literal(error_text)}"
        for guid, error_text in schemas.problems.items()
        if isinstance(guid, str)
    )
    schema_error = f"CASE {schema_id(column)} WHEN -1 THEN NULL{cases_by_id} END"
    schema_error = f"CASE{cases_by_guid} ELSE {schema_error} END" if cases_by_guid else schema_error
    named_schema = schema_name(column) if guids else schema_id(column)
    unframed = f"{part} does not begin with a zero byte and a schema's id, as a schema registry's clients write it"
    decoded = f"found_{format_name}"
    name = {"avro": "Avro", "protobuf": "protobuf"}.get(format_name)
    value_error = (
        f"CASE WHEN {decoded} IS NULL THEN concat('{part} is not {name} as schema ', {named_schema}, ' says') END"
    )
    error = (
        f"CASE WHEN {column} IS NULL THEN NULL WHEN NOT ({is_framed(column, by_guid=guids)}) THEN {literal(unframed)} "
        f"ELSE coalesce({schema_error}, {value_error if name else 'NULL'}) END"
    )
    if name:
        return _Decoding(value=f"CASE WHEN {column} IS NOT NULL THEN {decoded}.v END", error=error)
    text = f"CASE WHEN {is_framed(column)} THEN CAST({body(column)} AS STRING) END"
    if guids:
        text = f"CASE WHEN {has_guid(column)} THEN CAST({body(column, by_guid=True)} AS STRING) ELSE {text} END"
    return _Decoding(text=text, error=error)


def _connect(rows: DataFrame, schemas: ConnectSchemas, part: Part) -> tuple[DataFrame, _Decoding]:
    """Returns the rows with their column `connect_text` decoded by the schemas in it, and SQL that reads the result."""
    rows = rows.withColumn("connect_schema", sf.expr(schemas.schema_of("connect_text")))
    rows = rows.withColumn("connect_rest", sf.expr(without_schema("connect_text", "connect_schema")))
    # from_json by a schema accepts text after the payload, and a repeated key, of which it takes one value.
    rows = rows.withColumn("connect_json", sf.expr("zync_json(CAST(connect_rest AS BINARY))"))
    payload = "try_variant_get(connect_json.value, '$.payload', 'variant')"
    decoded = sf.expr(f"CASE WHEN connect_schema IS NULL AND {payload} IS NOT NULL THEN struct({payload} AS v) END")
    for schema_text, by_schema in schemas.columns.items():
        decoded = sf.when(sf.expr(f"connect_schema = {literal(schema_text)}"), by_schema).otherwise(decoded)
    decoded = sf.when(sf.expr("connect_json.value IS NOT NULL"), decoded)
    cases = "".join(
        f" WHEN {literal(schema_text)} THEN {literal(error_text)}"
        for schema_text, error_text in schemas.problems.items()
    )
    error = (
        "CASE WHEN connect_text IS NULL OR connect_found IS NOT NULL THEN NULL "
        f"WHEN connect_json.value IS NULL THEN '{part} ' || connect_json.error "
        f"ELSE coalesce(CASE connect_schema WHEN '' THEN NULL{cases} END, CASE WHEN {payload} IS NULL "
        f"THEN '{part} is not an object with schema and payload, as Connect writes it' "
        f"ELSE '{part} is not as the schema beside it says' END) END"
    )
    decoding = _Decoding(value="CASE WHEN connect_text IS NOT NULL THEN connect_found.v END", error=error)
    return rows.withColumn("connect_found", decoded), decoding


def _gunzip(column: Column) -> Column:
    """Unpacks gzip in Python, as Spark has no function for it; null where bytes are not gzip, or unpack to too many."""
    import zlib  # noqa: PLC0415

    import pyarrow as pa  # noqa: PLC0415

    size_limit, gzip_window_bits = _UNPACKED_MOST, 16 + zlib.MAX_WBITS

    # Executors may lack zync, so the function that Spark sends to them refers to nothing outside of this one.
    def gunzip(values: pa.Array) -> pa.Array:

        def unpack_value(data: bytes) -> bytes | None:
            unpacked = b""
            try:
                # A file may have several members, and zeroes after them: RFC 1952, 2.2.
                while len(unpacked) <= size_limit:
                    member = zlib.decompressobj(gzip_window_bits)
                    unpacked += member.decompress(data, size_limit + 1 - len(unpacked))
                    data = member.unused_data.lstrip(b"\0")
                    if not (member.eof and data):
                        return unpacked if member.eof and len(unpacked) <= size_limit else None
            except zlib.error:
                pass
            return None

        return pa.array([None if value is None else unpack_value(value) for value in values.to_pylist()], pa.binary())

    return cast("Column", arrow_udf(gunzip, "binary")(column))  # type: ignore[call-overload]
