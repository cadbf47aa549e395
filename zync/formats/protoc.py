"""What the text of a protobuf schema means, by protoc, which comes with Google's grpcio-tools."""

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
"""What the file of a schema is called that is compiled: registries have no name for it."""

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
"""What schemas in a registry may import without saying where it is, beside Google's own, by their field numbers.

See https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/serdes-protobuf.html
"""


@cache
def compiled(schema: Schema) -> bytes:
    """The FileDescriptorSet of a schema and of all that it imports; UsageError with what protoc says against it."""
    google, common = Path(grpc_tools.__file__).parent / "_proto", Path(calendar_period_pb2.__file__).parents[2]
    with tempfile.TemporaryDirectory(prefix="zync-protobuf-") as folder:
        inside = Path(folder).resolve()
        for name, text in {**_CONFLUENT, **dict(schema.references), MAIN: schema.text}.items():
            path = (inside / name).resolve()
            if not path.is_relative_to(inside):
                msg = f"{name!r} is no name for a file to import"
                raise UsageError(msg)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{one}" for one in (inside, google, common))]
        done = subprocess.run(  # noqa: S603 - our arguments
            [*command, "--include_imports", "--descriptor_set_out=/dev/stdout", MAIN], capture_output=True, check=False
        )
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode != 1 or not said:
        msg = f"protoc ended with {done.returncode}: {' '.join(said[-1:])}"
        raise ZyncError(msg)
    raise UsageError(next((line for line in said if ".proto:" in line and "warning:" not in line), said[-1]))


def messages(files: bytes) -> dict[bytes, str]:
    """The full names of the messages of the schema itself, by what Confluent's clients put before the bytes of one.

    Which is the path of its index among its siblings, outermost first: how many there are and each, as zigzag varints;
    a single 0 for the first message of all.
    """
    (main,) = (one for one in descriptor_pb2.FileDescriptorSet.FromString(files).file if one.name == MAIN)
    found: dict[bytes, str] = {}

    def walk(siblings: Iterable[descriptor_pb2.DescriptorProto], within: str, path: tuple[int, ...]) -> None:
        for number, one in enumerate(siblings):
            name, at = f"{within}{one.name}", (*path, number)
            if not one.options.map_entry:
                found[b"".join(_varint(2 * n) for n in (len(at), *at))] = name
                walk(one.nested_type, f"{name}.", at)

    walk(main.message_type, f"{main.package}." if main.package else "", ())
    return {b"\0": found[b"\x02\0"], **found} if found else {}


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + _varint(number >> 7)  # noqa: PLR2004 - seven bits each
