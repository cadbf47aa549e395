"""Packages that only some configs need, by the extra of zync that brings them."""

from importlib.util import find_spec

from zync.errors import UsageError

_OF_PROTOBUF = ("google.protobuf", "google.type", "grpc_tools")


def require_protobuf(topic: str, part: str) -> None:
    """Raises UsageError where the packages of the extra `protobuf`, which that topic needs, are missing."""
    if not all(map(_is_installed, _OF_PROTOBUF)):
        msg = f"topic {topic}: {part}: protobuf needs the extra: pip install 'zync[protobuf]'"
        raise UsageError(msg)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # find_spec imports the package that the module is in
        return False
