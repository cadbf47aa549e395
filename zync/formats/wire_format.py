"""Bytes as a schema registry's clients write them: a zero byte, the id of a schema, and what that says of the rest.

Some put what stands before the rest into a header, `__key_schema_id` or `__value_schema_id` (Confluent Platform 8.1):
there it may also be a one and the 16 bytes of the schema's GUID. It is put before the rest again here.
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
"""The formats, and the registry's names of their kinds of schema."""

_IDS_END = 2**31
"""Registries count so far: a number beyond is no schema's, and not asked for."""

_UNKNOWN_MOST = 1_000
"""Schema ids that the registry does not know, beyond which it is not asked on: the bytes mean something else."""


SchemaId = int | str
"""The id of a schema, or its GUID."""


@dataclass
class Framed:
    """The schemas of one kind that some rows name: what decodes by each id (as `avro`), or why none can.

    `in_headers`: whether some rows name them in a header, so that what they name is in `with_header`.
    """

    columns: dict[SchemaId, Column] = field(default_factory=dict)
    problems: dict[SchemaId, str] = field(default_factory=dict)
    in_headers: bool = False

    def found(self, column: str) -> Column:
        """What the schema of its id makes of each row, as `avro`; null where that fails."""
        found = None
        for number, decoded in self.columns.items():
            its = sf.expr(names(number, column))
            found = sf.when(its, decoded) if found is None else found.when(its, decoded)
        return sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") if found is None else found


def with_header(part: Part, column: str) -> str:
    """Those bytes, behind what the record's header says of their schema, where it has such a header.

    Deserializers of the registry's clients look there first.
    """
    framed = (
        "(startswith(h.value, X'01') AND length(h.value) >= 17 OR startswith(h.value, X'00') AND length(h.value) >= 5)"
    )
    header = f"try_element_at(filter(headers, h -> h.key = '__{part}_schema_id' AND {framed}), 1).value"
    return f"coalesce(concat({header}, {column}), {column})"


def is_framed(column: str, *, by_guid: bool = False) -> str:
    """Whether those bytes begin as such clients write them; `by_guid`: also with a GUID."""
    by_id = f"length({column}) >= 5 AND substring({column}, 1, 1) = X'00'"
    return f"({by_id} OR {has_guid(column)})" if by_guid else by_id


def has_guid(column: str) -> str:
    """Whether those bytes begin with a GUID, as in a header."""
    return f"length({column}) >= 17 AND substring({column}, 1, 1) = X'01'"


def schema_id(column: str) -> str:
    """The id of the schema of framed bytes."""
    return f"CAST(conv(hex(substring({column}, 2, 4)), 16, 10) AS BIGINT)"


def schema_name(column: str) -> str:
    """The id of the schema of framed bytes, or its GUID, as text."""
    guid = f"lower(hex(substring({column}, 2, 16)))"
    dashes = f"regexp_replace({guid}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.{{12}})', '$1-$2-$3-$4-$5')"
    return f"CASE WHEN {has_guid(column)} THEN {dashes} ELSE CAST({schema_id(column)} AS STRING) END"


def body(column: str, *, by_guid: bool = False) -> str:
    """What the schema says of framed bytes: those behind its id, or its GUID."""
    return f"substring({column}, {_body_at('' if by_guid else 0)})"


def _body_at(schema: SchemaId) -> int:
    return 18 if isinstance(schema, str) else 6


def names(schema: SchemaId, column: str) -> str:
    """Whether framed bytes are of that schema."""
    if isinstance(schema, str):
        return f"startswith({column}, X'01{schema.replace('-', '')}')"
    return f"{is_framed(column)} AND {schema_id(column)} = {schema}"


def schemas(spark: SparkSession, rows: DataFrame, access: RegistryAccess, kind: str, part: Part, column: str) -> Framed:
    """The schemas that those rows name, from the registry; `column` has their bytes of that `part`.

    What decodes is for `column`; or for `with_header_column`, where the schemas are `in_headers`.
    """
    asked, found, unknown = registry(access), Framed(), 0
    files: dict[SchemaId, bytes] = {}
    both = rows.selectExpr(f"{column} AS plain", f"{with_header(part, column)} AS framed")
    both = both.selectExpr("framed", "NOT framed <=> plain AS in_header")
    both = both.where(f"CASE WHEN in_header THEN {is_framed('framed', by_guid=True)} ELSE {is_framed('framed')} END")
    named = both.selectExpr("in_header", f"{schema_name('framed')} AS name").distinct().collect()
    found.in_headers = any(row["in_header"] for row in named)
    if found.in_headers:
        rows = rows.withColumn(with_header_column(part), sf.expr(with_header(part, column)))
        column = with_header_column(part)
    for name in {row["name"] for row in named}:
        number: SchemaId = int(name) if name.isdigit() else name
        by_guid = isinstance(number, str)
        try:
            schema = asked.schema(number) if by_guid or int(name) < _IDS_END else None
            if schema is None:
                found.problems[number] = f"the schema registry knows no schema {number}"
                unknown += 1
            elif schema.kind != KINDS[kind]:
                found.problems[number] = f"schema {number} is one of {schema.kind}, not {KINDS[kind]}"
            elif kind == "avro":
                found.columns[number] = avro(spark, body(column, by_guid=by_guid), schema)
            elif kind == "protobuf":
                from zync.formats.protoc import compiled  # noqa: PLC0415 - an extra

                files[number] = compiled(schema)
        except UsageError as error:
            found.problems[number] = f"schema {number} cannot be used: {error}"
        if unknown > _UNKNOWN_MOST:
            msg = (
                f"the schema registry knows none of more than {_UNKNOWN_MOST:,} schema ids: are all the topics that "
                f"should be {kind} really so? Nothing was changed"
            )
            raise DataError(msg)
    found.columns |= _protobuf(rows, column, files) if files else {}
    return found


def with_header_column(part: Part) -> str:
    """The name of a column for `with_header` of that part."""
    return f"{part}_with_header"


def _protobuf(rows: DataFrame, column: str, files: dict[SchemaId, bytes]) -> dict[SchemaId, Column]:
    """What those bytes mean by each schema, as `avro`: each is one of its schema's messages, and begins with which."""
    from zync.formats.protoc import messages  # noqa: PLC0415 - an extra

    found = {number: sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") for number in files}
    named = {number: messages(one) for number, one in files.items()}

    def begins(number: SchemaId, before: bytes) -> str:
        its = body(column, by_guid=isinstance(number, str))
        return f"{names(number, column)} AND startswith({its}, X'{before.hex()}')"

    which = " ".join(
        f"WHEN {begins(number, before)} THEN X'{before.hex()}'" for number, its in named.items() for before in its
    )
    if not which:
        return found
    rows = rows.selectExpr(f"{schema_name(column)} AS name", f"CASE {which} END AS which").where("which IS NOT NULL")
    for row in rows.distinct().collect():
        number, before = int(row["name"]) if row["name"].isdigit() else row["name"], bytes(row["which"])
        its = begins(number, before)
        data = f"CASE WHEN {its} THEN substring({column}, {_body_at(number) + len(before)}) END"
        message = _message(data, files[number], named[number][before])
        found[number] = sf.when(sf.expr(its), message).otherwise(found[number])
    return found


def _message(data: str, files: bytes, name: str) -> Column:
    """Those bytes as a message of that name, as `avro`. In Python: Spark 4.2 has no module for protobuf of its own."""
    kind, read = reading(files, name)
    message = arrow_udf(read, from_arrow_type(kind))(sf.expr(data))  # type: ignore[call-overload]
    value = sf.parse_json(message) if pa.types.is_string(kind) else sf.to_variant_object(message)
    return sf.when(message.isNotNull(), sf.struct(value.alias("v")))


def reading(files: bytes, name: str) -> tuple[pa.DataType, Callable[[Iterator[pa.Array]], Iterator[pa.Array]]]:
    """The type of a message, and what reads batches of them, to be sent to where there may be no zync."""
    from zync.formats.decode import protobuf  # noqa: PLC0415 - an extra

    reader_class = protobuf.Reader  # by itself: a module that a function names is imported there
    cloudpickle.register_pickle_by_value(protobuf)  # type: ignore[no-untyped-call]

    def read(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        reader = reader_class(files, name)
        for batch in batches:
            yield reader.read(batch.to_pylist())

    return reader_class(files, name).kind, read
