"""Providers of OpenTofu that know their schemas and nothing else: enough to validate, and to plan with mocks.

The real ones cannot be built or fetched here. Each is a gRPC server in this process, which OpenTofu is told to use in
place of a program (`TF_REATTACH_PROVIDERS`). It answers GetProviderSchema of version 6 of the plugin protocol from
tests/data/terraform-providers.json, takes each state as it is, and says to every other request that nothing is wrong.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from tests.deploy.helm import CHECKOUT

PROVIDERS: dict[str, dict[str, Any]] = json.loads((CHECKOUT / "tests/data/terraform-providers.json").read_text())
_NESTINGS = {"single": 1, "list": 2, "set": 3}


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _field(number: int, value: bytes | str | int | bool | None) -> bytes:
    """Returns a field of a message of protobuf; nothing for a value that is absent, 0 or false."""
    if not value and not isinstance(value, bytes):
        return b""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value or b""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _message(data: bytes) -> dict[int, bytes]:
    """Returns the fields of a message that are bytes, text or messages. Its numbers are skipped."""
    fields: dict[int, bytes] = {}
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(data):
        key, value = number(), number()
        if key & 7 == 2:
            fields[key >> 3] = data[position : position + value]
            position += value
    return fields


def _attribute(name: str, attribute: dict[str, Any]) -> bytes:
    nested = attribute.get("nested")
    flags = ((4, "required"), (5, "optional"), (6, "computed"))
    return (
        _field(1, name)
        + (b"" if nested else _field(2, json.dumps(attribute["type"])))
        + (_field(10, _object(nested)) if nested else b"")
        + b"".join(_field(number, attribute.get(flag)) for number, flag in flags)
    )


def _object(nested: dict[str, Any]) -> bytes:
    attributes = (_field(1, _attribute(*one)) for one in nested["attributes"].items())
    return b"".join(attributes) + _field(3, _NESTINGS[nested["nesting"]])


def _block(block: dict[str, Any]) -> bytes:
    blocks = (
        _field(1, name)
        + _field(2, _block(nested["block"]))
        + _field(3, _NESTINGS[nested["nesting"]])
        + _field(4, nested.get("min_items"))
        + _field(5, nested.get("max_items"))
        for name, nested in block["blocks"].items()
    )
    attributes = (_field(2, _attribute(*one)) for one in block["attributes"].items())
    return b"".join(attributes) + b"".join(_field(3, one) for one in blocks)


def _schemas(provider: dict[str, Any]) -> bytes:
    """Returns the answer to GetProviderSchema."""

    def entries(number: int, blocks: dict[str, Any]) -> bytes:
        schemas = ((name, _field(2, _block(block))) for name, block in blocks.items())
        return b"".join(_field(number, _field(1, name) + _field(2, schema)) for name, schema in schemas)

    return _field(1, _field(2, _block(provider["provider"]))) + b"".join(
        entries(number, provider[kind]) for number, kind in ((2, "resources"), (3, "data"))
    )


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, schemas: bytes) -> None:
        self._schemas = schemas

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        service, _, method = handler_call_details.method.rpartition("/")
        if service != "/tfplugin6.Provider":
            return None  # go-plugin's own streams, each of which would keep a thread
        return grpc.unary_unary_rpc_method_handler(lambda request, _context: self._answer(method, request))

    def _answer(self, method: str, request: bytes) -> bytes:
        if method == "GetProviderSchema":
            return self._schemas
        if method == "UpgradeResourceState":
            raw_state = _message(request)[3]
            return _field(1, _field(2, _message(raw_state)[1]))  # both have the state as JSON
        return b""


@contextmanager
def running_providers() -> Iterator[dict[str, str]]:
    """Runs the providers, and yields the variable by which OpenTofu and Terraform find them."""
    addresses: dict[str, Any] = {}
    servers = []
    for name, provider in PROVIDERS.items():
        server = grpc.server(ThreadPoolExecutor(4), handlers=[_Handler(_schemas(provider))])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        addresses[f"hashicorp/{name}"] = {
            "Protocol": "grpc",
            "ProtocolVersion": 6,
            "Pid": os.getpid(),
            "Test": True,
            "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
        }
    yield {"TF_REATTACH_PROVIDERS": json.dumps(addresses)}
    for server in servers:
        server.stop(None).wait()
