"""What an environment without an extra says of a config that needs it."""

import pytest

from zync.errors import UsageError
from zync.formats import extras


def test_protobuf_without_its_extra_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.require_protobuf("orders", "value")  # it is there in development
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "grpc_tools" else object())
    with pytest.raises(
        UsageError, match=r"topic orders: value: protobuf needs the extra: pip install 'zync\[protobuf\]'"
    ):
        extras.require_protobuf("orders", "value")
