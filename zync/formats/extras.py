"""Optional packages, which only some configs need, and the extra of zync that installs them."""

from importlib.util import find_spec

from zync.errors import UsageError

_PROTOBUF_MODULES = ("google.protobuf", "google.type", "grpc_tools")


def require_protobuf(topic: str, part: str) -> None:
    """Raises UsageError where packages of the extra `protobuf` are missing; `part` of `topic` needs them."""
    if not all(map(_is_installed, _PROTOBUF_MODULES)):
        msg = f"topic {topic}: {part}: protobuf needs the extra: pip install 'zync[protobuf]'"
        raise UsageError(msg)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # find_spec imports the parent package
        return False
