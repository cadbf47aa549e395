"""Parses rows, which staging has in JSON, by column to Arrow: Python takes several times as long row by row."""

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from zync.formats.encode.values import Kind, digits, fields, type_name

PARSE_ERRORS = (msgspec.MsgspecError, pa.ArrowException, ValueError, KeyError, OverflowError)
"""What is raised for texts that are not of their type."""
_LONG_DIGITS = 18
"""The most digits of a decimal whose unscaled value fits into 64 bits."""
_ARROW: dict[str, tuple[Any, pa.DataType]] = {
    "boolean": (bool, pa.bool_()),
    "byte": (int, pa.int8()),
    "short": (int, pa.int16()),
    "integer": (int, pa.int32()),
    "long": (int, pa.int64()),
    "float": (float | str, pa.float32()),
    "double": (float | str, pa.float64()),
    "string": (str, pa.string()),
    "binary": (bytes, pa.binary()),
    "date": (str, pa.date32()),
    "timestamp": (str, pa.timestamp("us", "UTC")),
    "timestamp_ntz": (str, pa.timestamp("us")),
}
"""By the type of a column: that by which its JSON is parsed, and Arrow's."""
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""Texts that staging has where JSON has no number."""
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}"
_TIMES = {"timestamp": f"{_TIME}Z$", "timestamp_ntz": f"{_TIME}$"}
"""How staging has times (zync.rules.json_text); Arrow takes other forms, too, which Spark refuses."""


def is_flat(kind: Kind) -> bool:
    """Returns whether `parser` has columns of the type: scalars, but no VARIANT, and no decimal of many digits."""
    kind_name = type_name(kind)
    return kind_name in _ARROW or (kind_name == "decimal" and digits(kind)[0] <= _LONG_DIGITS)


def parser(kind: Kind) -> Callable[[list[str]], list[pa.Array]]:
    """Returns a function that parses texts to the columns of a struct; a field that a text lacks is null.

    It raises one of `PARSE_ERRORS` if any value is not of its type.

    Args:
        kind: The type of the rows: a struct whose fields are all flat (`is_flat`).
    """
    types = [column_type for _, column_type in fields(kind)]
    names = [f"column_{number}" for number in range(len(types))]
    row = msgspec.defstruct(
        "Row",
        [(column, _json_type(column_type), None) for column, column_type in zip(names, types, strict=True)],
        rename=dict(zip(names, (name for name, _ in fields(kind)), strict=True)),
        gc=False,
    )
    decode = msgspec.json.Decoder(row).decode

    def parse(texts: list[str]) -> list[pa.Array]:
        rows = [decode(text) for text in texts]
        return [
            _column([getattr(one, column) for one in rows], column_type)
            for column, column_type in zip(names, types, strict=True)
        ]

    return parse


def _json_type(kind: Kind) -> Any:
    return msgspec.Raw if type_name(kind) == "decimal" else _ARROW[type_name(kind)][0] | None


def _column(values: list[Any], kind: Kind) -> pa.Array:
    """Returns the values of a column, parsed by its JSON type, as Arrow; OverflowError for a number beyond its type."""
    kind_name = type_name(kind)
    if kind_name == "decimal":
        numbers = [value and bytes(value).decode() for value in values]
        numbers = [None if number == "null" else number for number in numbers]
        return _array(numbers, pa.string()).cast(pa.decimal128(*digits(kind)))
    json_type, arrow_type = _ARROW[kind_name]
    if json_type == float | str:
        doubles = _array([_NOT_FINITE[value] if isinstance(value, str) else value for value in values], pa.float64())
        floats = doubles.cast(arrow_type)
        if pc.any(pc.xor(pc.is_inf(doubles), pc.is_inf(floats))).as_py():
            raise OverflowError
        return floats
    if json_type is str:
        texts = _array(values, pa.string())
        pattern = _TIMES.get(kind_name)
        if pattern and pc.any(pc.invert(pc.match_substring_regex(texts, pattern))).as_py():
            msg = f"a {kind_name} does not match {pattern}"
            raise ValueError(msg)
        return texts.cast(arrow_type)
    return _array(values, arrow_type)


def _array(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    array = pa.array(values, arrow_type)
    if isinstance(array, pa.ChunkedArray):  # of more than 2 GB
        raise OverflowError
    return array
