"""A produce request written byte by byte, for what no producer sends."""

import socket
import struct

Headers = list[tuple[str | bytes, bytes | None]]

_PRODUCE, _VERSION = 0, 3
_CASTAGNOLI = 0x82F63B78


def send_batch(
    broker: str, topic: str, records: list[tuple[bytes | None, bytes | None, Headers]], timestamp: int
) -> None:
    """Appends one batch (message format 2) to partition 0, whose records all have that timestamp.

    As https://kafka.apache.org/protocol says: Produce, version 3. AssertionError where the broker refuses it.
    """
    batch = _batch(records, timestamp)
    body = struct.pack(">hhiI", -1, -1, 10_000, 1) + _string(topic) + struct.pack(">iii", 1, 0, len(batch)) + batch
    head = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _string("test")
    host, _, port = broker.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(head + body)) + head + body)
        answer = _received(connection, *struct.unpack(">i", _received(connection, 4)))
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    assert error == 0, f"the broker answers with error {error}"


def _batch(records: list[tuple[bytes | None, bytes | None, Headers]], timestamp: int) -> bytes:
    packed = b"".join(_record(number, *one) for number, one in enumerate(records))
    after_crc = struct.pack(">hiqqqhii", 0, len(records) - 1, timestamp, timestamp, -1, -1, -1, len(records)) + packed
    rest = struct.pack(">ibI", -1, 2, _crc32c(after_crc)) + after_crc
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(number: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    body = b"\0" + _varint(0) + _varint(number) + _bytes(key) + _bytes(value) + _varint(len(headers))
    names = (name.encode() if isinstance(name, str) else name for name, _ in headers)
    body += b"".join(_bytes(name) + _bytes(content) for name, (_, content) in zip(names, headers, strict=True))
    return _varint(len(body)) + body


def _bytes(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*packed, number])


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += connection.recv(count - len(found))
    return found
