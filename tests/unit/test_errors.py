"""Each kind of error has a code of its own, which programs may compare; a commit that did not land says so by its."""

import importlib
import json
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import zync
from zync.cli.console import ConsoleOutput
from zync.errors import CommitRefusedError, UsageError, ZyncError
from zync.kafka.partition import Partition
from zync.raw.append import Appender
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import ensure_raw
from zync.staging.commit import add_rows, commit_files
from zync.staging.table import STAGING_SCHEMA, ensure_staging

PACKAGE = Path(zync.__file__).parent

CODES = {
    "AwayError": "ZYNC-KAFKA-AWAY",
    "CatalogError": "ZYNC-CATALOG",
    "CommitRefusedError": "ZYNC-COMMIT-REFUSED",
    "CommitUnknownError": "ZYNC-COMMIT-UNKNOWN",
    "ConflictError": "ZYNC-TABLE-CONFLICT",
    "DataError": "ZYNC-DATA",
    "FormatError": "ZYNC-TABLE-FORMAT",
    "GapError": "ZYNC-GAP",
    "NameTakenError": "ZYNC-CATALOG-NAME",
    "OwnedError": "ZYNC-OWNED",
    "TableLostError": "ZYNC-TABLE-LOST",
    "RaisedError": "ZYNC-RULE-RAISED",
    "RefusedError": "ZYNC-KAFKA-REFUSED",
    "RegistryAwayError": "ZYNC-REGISTRY-AWAY",
    "UsageError": "ZYNC-USAGE",
    "ZyncError": "ZYNC-FAILED",
    "SchemaRefusedError": "ZYNC-REGISTRY-REFUSED",
}
"""Codes are for ever: one is added with its class, and none is changed."""


def all_errors() -> set[type[ZyncError]]:
    """ZyncError and all below it, wherever they are defined."""
    for path in PACKAGE.rglob("*.py"):
        if re.search(r"^class \w+\(\w*Error\):", path.read_text(), re.MULTILINE):
            importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    found, new = {ZyncError}, {ZyncError}
    while new := {below for one in new for below in one.__subclasses__()} - found:
        found |= new
    return {one for one in found if one.__module__.startswith("zync.")}


def test_each_kind_of_error_has_the_code_that_it_always_had() -> None:
    errors = all_errors()
    assert {one.__name__: one.code for one in errors} == CODES
    assert len(errors) == len(CODES)
    assert not [one for one in errors if "code" not in vars(one)]
    assert not [one for one in errors if not re.fullmatch(r"ZYNC(-[A-Z]+)+", one.code)]


def test_codes_are_unique() -> None:
    assert len(set(CODES.values())) == len(CODES)


def test_each_kind_of_error_says_what_happened_and_what_to_do() -> None:
    for one in all_errors():
        happened, _, to_do = (one.__doc__ or "").partition("\n\n")
        assert happened.endswith("."), one
        assert to_do.strip().endswith("."), one


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process can have more than a few bytes: as where a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_append_that_did_not_land_says_so_by_its_code(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    ensure_raw(str(raw))
    with pytest.raises(CommitRefusedError, match="cannot be written"), no_room():
        Appender(str(raw)).append_planned(
            lambda table: as_batch([Line("a line", Partition("t", 0), value=b"{}")], table)
        )


def test_a_sync_that_did_not_land_says_so_by_its_code(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    table = ensure_staging(str(staging))
    rows = pa.Table.from_pylist([{"kind": "cursor", "seqno": 0, "sync": 1, "head": 0, "full": 1}], STAGING_SCHEMA)
    (staging / "sync-1-x").mkdir()
    add_rows(table, "sync-1-x", rows)
    with pytest.raises(CommitRefusedError, match="the commit of sync 1 to .* did not land"), no_room():
        commit_files(table, "sync-1-x", 1, "x", rows=1)


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_programs_are_told_the_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZYNC_LOG_FORMAT", "json")
    ConsoleOutput().error("it is not there", code=UsageError.code)
    said = json.loads(error_line(capsys))
    assert (said["level"], said["code"], said["message"]) == ("error", "ZYNC-USAGE", "it is not there")


def test_people_see_the_code_with_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleOutput().error("it is not there", code=UsageError.code)
    assert error_line(capsys) == "zync: it is not there"
    ConsoleOutput().error("it is not there", "UsageError: it is not there\n", UsageError.code)
    assert error_line(capsys) == "UsageError: it is not there [ZYNC-USAGE]"
