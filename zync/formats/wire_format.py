"""Bytes as a schema registry's clients write them: a zero byte, the id of a schema, and what that says of the rest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from zync.config.model import RegistryAccess
from zync.errors import DataError, UsageError
from zync.formats.decode.avro import avro
from zync.formats.registry import registry

KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
"""The formats, and the registry's names of their kinds of schema."""

_IDS_END = 2**31
"""Registries count so far: a number beyond is no schema's, and not asked for."""

_UNKNOWN_MOST = 1_000
"""Schema ids that the registry does not know, beyond which it is not asked on: the bytes mean something else."""


@dataclass
class Framed:
    """The schemas of one kind that some rows name: what decodes by each id (as `avro`), or why none can."""

    columns: dict[int, Column] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)

    def found(self, column: str) -> Column:
        """What the schema of its id makes of each row, as `avro`; null where that fails."""
        found = None
        for number, decoded in self.columns.items():
            its = sf.expr(_names(number, column))
            found = sf.when(its, decoded) if found is None else found.when(its, decoded)
        return sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") if found is None else found


def is_framed(column: str) -> str:
    """Whether those bytes begin as such clients write them."""
    return f"length({column}) >= 5 AND substring({column}, 1, 1) = X'00'"


def schema_id(column: str) -> str:
    """The id of the schema of framed bytes."""
    return f"CAST(conv(hex(substring({column}, 2, 4)), 16, 10) AS BIGINT)"


def body(column: str) -> str:
    """What the schema says of framed bytes: those behind its id."""
    return f"substring({column}, 6)"


def _names(number: int, column: str) -> str:
    return f"{is_framed(column)} AND {schema_id(column)} = {number}"


def schemas(spark: SparkSession, rows: DataFrame, access: RegistryAccess, kind: str, column: str) -> Framed:
    """The schemas that those rows name, from the registry."""
    asked, found, unknown = registry(access), Framed(), 0
    files: dict[int, bytes] = {}
    for row in rows.where(is_framed(column)).selectExpr(f"{schema_id(column)} AS id").distinct().collect():
        number = row["id"]
        try:
            schema = asked.schema(number) if number < _IDS_END else None
            if schema is None:
                found.problems[number] = f"the schema registry knows no schema {number}"
                unknown += 1
            elif schema.kind != KINDS[kind]:
                found.problems[number] = f"schema {number} is one of {schema.kind}, not {KINDS[kind]}"
            elif kind == "avro":
                found.columns[number] = avro(spark, body(column), schema)
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


def _protobuf(rows: DataFrame, column: str, files: dict[int, bytes]) -> dict[int, Column]:
    """What those bytes mean by each schema, as `avro`: each is one of its schema's messages, and begins with which."""
    from zync.formats.protoc import messages  # noqa: PLC0415 - an extra

    found = {number: sf.expr("CAST(NULL AS STRUCT<v: VARIANT>)") for number in files}
    names = {number: messages(one) for number, one in files.items()}
    which = " ".join(
        f"WHEN {_names(number, column)} AND startswith({body(column)}, X'{before.hex()}') THEN X'{before.hex()}'"
        for number, its in names.items()
        for before in its
    )
    if not which:
        return found
    rows = rows.selectExpr(f"{schema_id(column)} AS id", f"CASE {which} END AS which").where("which IS NOT NULL")
    for row in rows.distinct().collect():
        number, before = row["id"], bytes(row["which"])
        its = f"{_names(number, column)} AND startswith({body(column)}, X'{before.hex()}')"
        data = f"CASE WHEN {its} THEN substring({column}, {6 + len(before)}) END"
        message = _message(data, files[number], names[number][before])
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
