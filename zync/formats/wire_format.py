"""Decodes the wire format of a schema registry's clients: a zero byte, the schema's id in four bytes, and the value.

Clients may put the prefix into a header, `__key_schema_id` or `__value_schema_id` (Confluent Platform 8.1); there it
may also be the byte 1 and the 16 bytes of the schema's GUID. This module puts it before the value again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from zync.config.model import Part, RegistryAccess
from zync.errors import DataError, UsageError
from zync.formats.decode.avro import avro
from zync.formats.registry import registry

KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
"""The registry's name of the schema type of each format."""

_IDS_END = 2**31
"""Schema ids end here. A larger number is no id, and is not looked up."""

_UNKNOWN_MOST = 1_000
"""With more unknown schema ids than this, lookups end in an error: the bytes are most likely of another format."""

SchemaId = int | str
"""The id of a schema, or its GUID."""


@dataclass
class RegistrySchemas:
    """The schemas that the values of some rows refer to.

    Attributes:
        columns: by schema a Column that decodes by it, as `avro` returns it.
        problems: by schema the error text, where it cannot be used.
        in_headers: whether some rows have the schema in a header, so that `with_schema_header` must be decoded.
    """

    columns: dict[SchemaId, Column] = field(default_factory=dict)
    problems: dict[SchemaId, str] = field(default_factory=dict)
    in_headers: bool = False

    def decoded(self, column: str) -> Column:
        """Returns each row's value decoded by its own schema, as `avro` returns it; null where that fails."""
        cases = None
        for schema, by_schema in self.columns.items():
            condition = sf.expr(has_schema(schema, column))
            cases = sf.when(condition, by_schema) if cases is None else cases.when(condition, by_schema)
        return sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") if cases is None else cases


def with_schema_header(part: Part, column: str) -> str:
    """Returns SQL of the bytes in `column`, with the prefix from the record's header before them if it has one.

    Deserializers of the registry's clients look at the header first, too.
    """
    valid_prefix = (
        "(startswith(h.value, X'01') AND length(h.value) >= 17 OR startswith(h.value, X'00') AND length(h.value) >= 5)"
    )
    header = f"try_element_at(filter(headers, h -> h.key = '__{part}_schema_id' AND {valid_prefix}), 1).value"
    return f"coalesce(concat({header}, {column}), {column})"


def is_framed(column: str, *, by_guid: bool = False) -> str:
    """Returns SQL: whether the bytes begin with a zero byte and an id, or, with `by_guid`, the byte 1 and a GUID."""
    by_id = f"length({column}) >= 5 AND substring({column}, 1, 1) = X'00'"
    return f"({by_id} OR {has_guid(column)})" if by_guid else by_id


def has_guid(column: str) -> str:
    """Returns SQL: whether the bytes begin with the byte 1 and a GUID, as from a header."""
    return f"length({column}) >= 17 AND substring({column}, 1, 1) = X'01'"


def schema_id(column: str) -> str:
    """Returns SQL of the schema id in framed bytes."""
    return f"CAST(conv(hex(substring({column}, 2, 4)), 16, 10) AS BIGINT)"


def schema_name(column: str) -> str:
    """Returns SQL of the schema id or GUID in framed bytes, as text."""
    guid = f"lower(hex(substring({column}, 2, 16)))"
    dashes = f"regexp_replace({guid}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '$1-$2-$3-$4-$5')"
    return f"CASE WHEN {has_guid(column)} THEN {dashes} ELSE CAST({schema_id(column)} AS STRING) END"


def body(column: str, *, by_guid: bool = False) -> str:
    """Returns SQL of the value in framed bytes: the bytes after the id or, with `by_guid`, the GUID."""
    return f"substring({column}, {_body_start('' if by_guid else 0)})"


def _body_start(schema: SchemaId) -> int:
    """Returns the position of the value in framed bytes; SQL counts from 1."""
    return 18 if isinstance(schema, str) else 6


def has_schema(schema: SchemaId, column: str) -> str:
    """Returns SQL: whether framed bytes refer to `schema`."""
    if isinstance(schema, str):
        return f"startswith({column}, X'01{schema.replace('-', '')}')"
    return f"{is_framed(column)} AND {schema_id(column)} = {schema}"


def schemas_of(
    spark: SparkSession, rows: DataFrame, access: RegistryAccess, format_name: str, part: Part, column: str
) -> RegistrySchemas:
    """Looks up in the registry the schemas that the rows refer to.

    `column` has the bytes of the `part`, key or value. The Columns of the result decode `column`; or
    `with_schema_header_column`, where the schemas are `in_headers`.

    Raises:
        DataError: the rows have more than 1,000 schema ids that the registry does not know.
    """
    client, schemas, unknown = registry(access), RegistrySchemas(), 0
    descriptors: dict[SchemaId, bytes] = {}
    prefixes = rows.selectExpr(f"{column} AS plain", f"{with_schema_header(part, column)} AS framed")
    prefixes = prefixes.selectExpr("framed", "NOT framed <=> plain AS in_header")
    prefixes = prefixes.where(
        f"CASE WHEN in_header THEN {is_framed('framed', by_guid=True)} ELSE {is_framed('framed')} END"
    )
    references = prefixes.selectExpr("in_header", f"{schema_name('framed')} AS name").distinct().collect()
    schemas.in_headers = any(row["in_header"] for row in references)
    if schemas.in_headers:
        rows = rows.withColumn(with_schema_header_column(part), sf.expr(with_schema_header(part, column)))
        column = with_schema_header_column(part)
    for name in {row["name"] for row in references}:
        key: SchemaId = int(name) if name.isdigit() else name
        by_guid = isinstance(key, str)
        try:
            schema = client.schema(key) if by_guid or int(name) < _IDS_END else None
            if schema is None:
                schemas.problems[key] = f"the schema registry knows no schema {key}"
                unknown += 1
            elif schema.kind != KINDS[format_name]:
                schemas.problems[key] = f"schema {key} is one of {schema.kind}, not {KINDS[format_name]}"
            elif format_name == "avro":
                schemas.columns[key] = avro(spark, body(column, by_guid=by_guid), schema)
            elif format_name == "protobuf":
                from zync.formats.protoc import compiled  # noqa: PLC0415 - an extra

                descriptors[key] = compiled(schema)
        except UsageError as error:
            schemas.problems[key] = f"schema {key} cannot be used: {error}"
        if unknown > _UNKNOWN_MOST:
            msg = (
                f"the schema registry knows none of more than {_UNKNOWN_MOST:,} schema ids: are all the topics that "
                f"should be {format_name} really so? Nothing was changed"
            )
            raise DataError(msg)
    schemas.columns |= _protobuf(rows, column, descriptors) if descriptors else {}
    return schemas


def with_schema_header_column(part: Part) -> str:
    """Returns the name of the column for `with_schema_header` of `part`."""
    return f"{part}_with_header"


def _protobuf(rows: DataFrame, column: str, descriptors: dict[SchemaId, bytes]) -> dict[SchemaId, Column]:
    """Returns by schema a Column that decodes protobuf, as `avro` does for Avro.

    A schema can have several message types: a value begins with the indexes of its own. Only types that occur in the
    rows get a decoder.
    """
    from zync.formats.protoc import messages  # noqa: PLC0415 - an extra

    columns = {schema: sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") for schema in descriptors}
    message_names = {schema: messages(descriptor) for schema, descriptor in descriptors.items()}

    def has_indexes(schema: SchemaId, indexes: bytes) -> str:
        value = body(column, by_guid=isinstance(schema, str))
        return f"{has_schema(schema, column)} AND startswith({value}, X'{indexes.hex()}')"

    cases = " ".join(
        f"WHEN {has_indexes(schema, indexes)} THEN X'{indexes.hex()}'"
        for schema, names in message_names.items()
        for indexes in names
    )
    if not cases:
        return columns
    rows = rows.selectExpr(f"{schema_name(column)} AS name", f"CASE {cases} END AS which").where("which IS NOT NULL")
    for row in rows.distinct().collect():
        schema, indexes = int(row["name"]) if row["name"].isdigit() else row["name"], bytes(row["which"])
        condition = has_indexes(schema, indexes)
        data = f"CASE WHEN {condition} THEN substring({column}, {_body_start(schema) + len(indexes)}) END"
        message = _message(data, descriptors[schema], message_names[schema][indexes])
        columns[schema] = sf.when(sf.expr(condition), message).otherwise(columns[schema])
    return columns


def _message(data: str, descriptor: bytes, name: str) -> Column:
    """Decodes bytes as the message type `name`, in Python: Spark 4.2 comes without a module for protobuf."""
    arrow_type, read = reading(descriptor, name)
    message = arrow_udf(read, from_arrow_type(arrow_type))(sf.expr(data))  # type: ignore[call-overload]
    value = sf.parse_json(message) if pa.types.is_string(arrow_type) else sf.to_variant_object(message)
    return sf.when(message.isNotNull(), sf.struct(value.alias("v")))


def reading(files: bytes, name: str) -> tuple[pa.DataType, Callable[[Iterator[pa.Array]], Iterator[pa.Array]]]:
    """Returns the Arrow type of the message type `name`, and a function that decodes batches of such messages.

    Spark sends the function to executors, which may lack zync. `files` is a FileDescriptorSet.
    """
    from zync.formats.decode import protobuf  # noqa: PLC0415 - an extra

    reader_class = protobuf.Reader  # the class alone: executors would import a module that `read` refers to
    cloudpickle.register_pickle_by_value(protobuf)  # type: ignore[no-untyped-call]

    def read(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        reader = reader_class(files, name)
        for batch in batches:
            yield reader.read(batch.to_pylist())

    return reader_class(files, name).kind, read
