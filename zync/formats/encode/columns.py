"""Encodes output rows by column: the JSON of many rows is parsed to Arrow, and their bytes are joined by Arrow.

Python takes several times as long row by row. This is for rows whose columns are scalars; nested columns, VARIANTs and
long decimals are encoded row by row, as is a batch that fails here, so that the error names its row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zync.formats.encode.json_rows import PARSE_ERRORS, is_flat, parser
from zync.formats.encode.values import Kind, fields

EncodeColumn = Callable[[pa.Array], pa.Array]
"""Encodes the values of a column as binary; a null stays null."""
EncodeAll = Callable[[list[str], bytes], list[bytes]]
"""Encodes rows in JSON, each after the given bytes."""


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows of a type.

    Attributes:
        one: Encodes the JSON text of a row.
        all: Encodes many rows to the same bytes, and raises for any that `one` raises for; None: there are types that
            take `one`.
    """

    one: Callable[[str], bytes]
    all: EncodeAll | None = None

    def encoded(self, texts: list[str], header: bytes) -> list[bytes] | None:
        """Returns each row in bytes after the header; None where `one` has to say what is wrong with which row."""
        if self.all is None:
            return None
        try:
            return self.all(texts, header)
        except PARSE_ERRORS:
            return None


def by_column(kind: Kind, encode: Callable[[str, Kind], tuple[bytes, bytes, EncodeColumn] | None]) -> EncodeAll | None:
    """Returns a function that encodes many rows; None if a column cannot be encoded so.

    Args:
        kind: The type of the rows, a struct.
        encode: Returns for a column's name and type the bytes before a value, those in place of a null, and the
            function that encodes the values; None if it has none for the type.
    """
    columns = [(name, column_type, encode(name, column_type)) for name, column_type in fields(kind)]
    if not columns or not all(encoding and is_flat(column_type) for _, column_type, encoding in columns):
        return None
    parse = parser(kind)
    encodings = [encoding for _, _, encoding in columns if encoding]

    def encode_all(texts: list[str], header: bytes) -> list[bytes]:
        parts: list[Any] = [header]
        for values, (before, null, encode_column) in zip(parse(texts), encodings, strict=True):
            parts += _optional(values, before, null, encode_column(values))
        return joined(*parts).to_pylist()  # type: ignore[no-any-return]

    return encode_all


def _optional(values: pa.Array, before: bytes, null: bytes, encoded: pa.Array) -> list[Any]:
    """Returns what to join for a column: the bytes before each value, or those in place of a null; and the values."""
    if values.null_count == 0:
        return [before, encoded]
    return [pc.if_else(values.is_valid(), before, null), encoded]


def joined(*parts: pa.Array | bytes) -> pa.Array:
    """Returns the parts one after the other, as binary; a null is nothing."""
    texts = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part.cast(pa.binary()) for part in parts]
    return pc.binary_join_element_wise(
        *texts, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )


def varints(values: np.ndarray[Any, np.dtype[np.uint64]]) -> pa.Array:
    """Returns unsigned numbers in 7 bits a byte, the lowest first; all bytes but the last have the highest bit.

    Source: https://protobuf.dev/programming-guides/encoding/#varints and
    https://avro.apache.org/docs/1.12.0/specification/#primitive-types-1
    """
    lengths = np.ones(len(values), np.int32)
    for bits in range(7, 64, 7):
        longer = values >= np.uint64(1 << bits)
        if not longer.any():
            break
        lengths += longer
    width = int(lengths.max(initial=1))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    places = np.arange(width, dtype=np.int32)
    grouped = (values[:, None] >> shifts & np.uint64(0x7F)).astype(np.uint8)
    grouped |= np.where(places < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return _binary(grouped[places < lengths[:, None]], lengths)


def _binary(content: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> pa.Array:
    """Returns binary values of those lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def with_nulls_of(values: pa.Array, encoded: pa.Array) -> pa.Array:
    """Returns `encoded` with null where `values` has null."""
    return encoded if values.null_count == 0 else pc.if_else(values.is_valid(), encoded, pa.scalar(None, pa.binary()))


def integers(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns whole numbers, dates (days) and timestamps (microseconds) as integers; 0 for a null."""
    width = pa.int32() if pa.types.is_date32(values.type) else pa.int64()
    whole: np.ndarray[Any, Any] = values.cast(width).fill_null(0).to_numpy(zero_copy_only=False)
    return whole.astype(np.int64)


def zigzag(values: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Returns signed numbers as unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return (values << 1 ^ values >> 63).view(np.uint64)


def with_length(values: pa.Array, length: Callable[[np.ndarray[Any, Any]], pa.Array]) -> pa.Array:
    """Returns strings or binary, each after its length, which `length` encodes."""
    content = values.cast(pa.binary())
    lengths = length(pc.binary_length(content).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    return with_nulls_of(values, joined(lengths, content))


def little_endian(values: pa.Array) -> pa.Array:
    """Returns floating-point numbers as their bytes, the lowest first."""
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    size = numbers.dtype.itemsize
    content = numbers.astype(numbers.dtype.newbyteorder("<")).view(np.uint8)
    return _binary(content, np.full(len(numbers), size, np.int32))


def unscaled(values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns decimals of at most 18 digits as whole numbers of their last digit; 0 for a null."""
    low_and_high = np.frombuffer(values.fill_null(0).buffers()[1], np.int64)  # 128 bits each, the lower half first
    return low_and_high[2 * values.offset : 2 * (values.offset + len(values)) : 2].copy()


def big_endian(numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Returns whole numbers in two's complement in as few bytes as hold them, the highest first.

    Like `number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)`.
    """
    lengths = np.ones(len(numbers), np.int32)
    magnitudes = np.abs(numbers).astype(np.uint64)
    for count in range(1, 8):
        lengths += magnitudes >= np.uint64(1 << (8 * count - 1))
    content = numbers.astype(">i8").view(np.uint8).reshape(len(numbers), 8)
    return _binary(content[np.arange(8, dtype=np.int32) >= 8 - lengths[:, None]], lengths)
