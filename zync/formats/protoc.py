"""Compiles protobuf schemas with protoc, which comes with Google's grpcio-tools."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grpc_tools
from google.protobuf import descriptor_pb2
from google.type import calendar_period_pb2

from zync.errors import UsageError, ZyncError
from zync.formats.registry import Schema

MAIN = "zync_schema.proto"
"""The file name for a schema to compile; registries have no name for it."""

_CONFLUENT = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}
"""Files that schemas may import without a reference in the registry, like Google's, with Confluent's field numbers.

See https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-protobuf.html
"""


@cache
def compiled(schema: Schema) -> bytes:
    """Returns the serialized FileDescriptorSet of a schema and of all that it imports.

    Raises:
        UsageError: the schema is invalid; with protoc's message.
        ZyncError: protoc failed otherwise.
    """
    google, common = Path(grpc_tools.__file__).parent / "_proto", Path(calendar_period_pb2.__file__).parents[2]
    with tempfile.TemporaryDirectory(prefix="zync-protobuf-") as folder:
        root = Path(folder).resolve()
        for name, text in {**_CONFLUENT, **dict(schema.references), MAIN: schema.text}.items():
            path = (root / name).resolve()
            if not path.is_relative_to(root):
                msg = f"{name!r} is no name for a file to import"
                raise UsageError(msg)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{path}" for path in (root, google, common))]
        process = subprocess.run(  # noqa: S603 - zync's own arguments
            [*command, "--include_imports", "--descriptor_set_out=/dev/stdout", MAIN], capture_output=True, check=False
        )
    if process.returncode == 0:
        return process.stdout
    lines = process.stderr.decode(errors="replace").strip().splitlines()
    if process.returncode != 1 or not lines:
        msg = f"protoc ended with {process.returncode}: {' '.join(lines[-1:])}"
        raise ZyncError(msg)
    raise UsageError(next((line for line in lines if ".proto:" in line and "warning:" not in line), lines[-1]))


def messages(files: bytes) -> dict[bytes, str]:
    """Returns the full names of the schema's message types, by the prefix that Confluent's clients put before each.

    The prefix is the message type's path of indexes among its siblings, outermost first: the number of indexes and then
    each index, as zigzag varints; or a single 0 for the first message type of the file.
    """
    (main,) = (file for file in descriptor_pb2.FileDescriptorSet.FromString(files).file if file.name == MAIN)
    names: dict[bytes, str] = {}

    def walk(siblings: Iterable[descriptor_pb2.DescriptorProto], within: str, path: tuple[int, ...]) -> None:
        for number, message in enumerate(siblings):
            name, indexes = f"{within}{message.name}", (*path, number)
            if not message.options.map_entry:
                names[b"".join(_varint(2 * n) for n in (len(indexes), *indexes))] = name
                walk(message.nested_type, f"{name}.", indexes)

    walk(main.message_type, f"{main.package}." if main.package else "", ())
    return {b"\0": names[b"\x02\0"], **names} if names else {}


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)  # noqa: PLR2004 - seven bits each
