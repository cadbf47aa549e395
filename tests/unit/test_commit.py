"""The optimistic commit, on real tables with faults around it: landed, refused and unknown are never mistaken."""

import random
import resource
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from zync.errors import CommitRefusedError, CommitUnknownError, OwnedError, ZyncError
from zync.kafka.partition import Partition
from zync.lake.commit import Commit, Landed, Refused
from zync.lake.files import data_files
from zync.lake.table import NO_HOOKS, ensure_table
from zync.operate.rewrite import rewrite
from zync.raw.append import Appender
from zync.raw.jsonl import Line, as_batch
from zync.raw.table import ensure_raw
from zync.staging.commit import add_rows, commit_files
from zync.staging.table import STAGING_SCHEMA, ensure_staging

SCHEMA = pa.schema([("n", pa.int64())])
Attempt = Callable[[CommitProperties], None]


@pytest.fixture
def location(tmp_path: Path) -> str:
    ensure_table(str(tmp_path / "table"), SCHEMA, "numbers")
    return str(tmp_path / "table")


def numbers(location: str) -> list[int]:
    return sorted(DeltaTable(location).to_pyarrow_table()["n"].to_pylist())


def commit(table: DeltaTable, nonce: str = "mine") -> Commit:
    return Commit(table, {"app": 1}, nonce, "it cannot be written", "the commit of 1", "the next one")


def append(table: DeltaTable, number: int) -> Attempt:
    def write(properties: CommitProperties) -> None:
        rows = pa.table({"n": [number]}, SCHEMA)
        write_deltalake(table, rows, mode="append", commit_properties=properties, post_commithook_properties=NO_HOOKS)

    return write


def then(write: Attempt, after: Callable[[], object]) -> Attempt:
    def both(properties: CommitProperties) -> None:
        write(properties)
        after()

    return both


def raises(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def by_another(location: str, number: int) -> None:
    write_deltalake(location, pa.table({"n": [number]}, SCHEMA), mode="append")


def newest_entry(location: str) -> Path:
    return max(Path(location, "_delta_log").glob("*.json"))


@contextmanager
def no_room() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_commit_lands_with_its_transactions(location: str) -> None:
    table = DeltaTable(location)
    assert commit(table).attempt(append(table, 1)) == Landed(table)
    assert numbers(location) == [1]
    assert DeltaTable(location).transaction_version("app") == 1


@pytest.mark.parametrize(
    "error",
    [
        OSError("the answer was lost"),
        DeltaError("a hook failed"),
        pa.ArrowInvalid("odd"),
        Exception("no class"),
    ],
)
def test_a_commit_whose_answer_is_lost_has_landed(location: str, error: Exception) -> None:
    table = DeltaTable(location)
    outcome = commit(table).attempt(then(append(table, 1), raises(error)))
    assert isinstance(outcome, Landed)
    assert outcome.table is not table
    assert outcome.table.version() == 1
    assert numbers(location) == [1]


def test_a_commit_whose_answer_is_lost_has_landed_though_others_followed(location: str) -> None:
    table = DeltaTable(location)

    def others() -> None:
        by_another(location, 2)
        by_another(location, 3)
        raise OSError

    assert isinstance(commit(table).attempt(then(append(table, 1), others)), Landed)
    assert numbers(location) == [1, 2, 3]


def test_a_commit_that_comes_second_is_refused_and_lands_at_the_version_that_it_gets(location: str) -> None:
    table = DeltaTable(location)
    by_another(location, 2)
    outcome = commit(table).attempt(append(table, 1))
    assert isinstance(outcome, Refused)
    assert outcome.table
    assert numbers(location) == [2]
    assert commit(outcome.table).attempt(append(outcome.table, 1)) == Landed(outcome.table)
    assert numbers(location) == [1, 2]


def test_the_nonce_of_another_is_not_taken_for_ones_own(location: str) -> None:
    late, other = DeltaTable(location), DeltaTable(location)
    commit(other, "theirs").attempt(append(other, 2))
    assert isinstance(commit(late).attempt(append(late, 1)), Refused)


def test_where_there_is_no_room_it_did_not_land_and_the_message_says_why(location: str) -> None:
    table = DeltaTable(location)
    with pytest.raises(CommitRefusedError, match=r"^it cannot be written: .*File too large"), no_room():
        commit(table).attempt(append(table, 1))
    assert DeltaTable(location).version() == 0


def test_what_may_not_be_written_did_not_land(location: str) -> None:
    with pytest.raises(CommitRefusedError, match=r"^it cannot be written: Permission denied") as caught:
        commit(DeltaTable(location)).attempt(lambda _: raises(PermissionError("Permission denied"))())
    assert isinstance(caught.value.__cause__, PermissionError)


def test_where_the_table_cannot_be_read_any_more_the_outcome_is_unknown(location: str) -> None:
    table = DeltaTable(location)

    def cut_off() -> None:
        entry = newest_entry(location)
        entry.write_bytes(entry.read_bytes()[:-20])
        raise OSError(5, "Input/output error")

    message = (
        r"^the commit of 1 failed \(.*Input/output error\) and the table cannot be read \(.* was cut off.*\): "
        "whether it landed is not known; the next one will see$"
    )
    with pytest.raises(CommitUnknownError, match=message):
        commit(table).attempt(then(append(table, 1), cut_off))


def test_a_commit_that_delta_rs_refuses_by_an_exception_without_a_class_did_not_land(location: str) -> None:
    with pytest.raises(CommitRefusedError, match=r"^it cannot be written: Arrow failed$"):
        commit(DeltaTable(location)).attempt(lambda _: raises(Exception("Arrow failed"))())


@pytest.mark.parametrize("left", [False, True])
def test_of_a_table_that_is_gone_nothing_is_there_to_go_on_with(location: str, left: bool) -> None:
    table = DeltaTable(location)

    def remove() -> None:
        shutil.rmtree(f"{location}/_delta_log" if left else location)
        raises(OSError("no such file"))()

    outcome = commit(table).attempt(then(append(table, 1), remove))
    assert isinstance(outcome, Refused)
    assert (outcome.table, str(outcome.error)) == (None, "no such file")


def test_a_table_that_was_made_anew_meanwhile_has_refused_it(location: str) -> None:
    table = DeltaTable(location)
    for number in (1, 2):
        by_another(location, number)
    table.update_incremental()

    def anew() -> None:
        shutil.rmtree(location)
        ensure_table(location, SCHEMA, "numbers")
        raise OSError

    outcome = commit(table).attempt(lambda _: anew())
    assert isinstance(outcome, Refused)
    assert outcome.table
    assert outcome.table.version() == 0


def test_an_error_of_the_plan_is_not_one_of_the_commit(location: str) -> None:
    with pytest.raises(ZyncError, match="files were deleted") as caught:
        commit(DeltaTable(location)).attempt(lambda _: raises(ZyncError("files were deleted"))())
    assert type(caught.value) is ZyncError


def test_writers_that_retry_while_answers_are_lost_each_land_once(location: str) -> None:
    """Four writers of ten commits each; of a third of the attempts the answer is lost."""
    chance, failed = random.Random(4), list[BaseException]()

    def write_all(writer: int) -> None:
        for number in range(10 * writer, 10 * writer + 10):
            table: DeltaTable | None = DeltaTable(location)
            nonce = uuid.uuid4().hex
            while table:
                attempt = append(table, number)
                if chance.random() < 0.3:
                    attempt = then(attempt, raises(OSError("the answer was lost")))
                outcome = commit(table, nonce).attempt(attempt)
                table = outcome.table if isinstance(outcome, Refused) else None

    def run(writer: int) -> None:
        try:
            write_all(writer)
        except BaseException as error:  # noqa: BLE001 - a thread's error is shown by the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert numbers(location) == [*range(40)]


@pytest.fixture
def staging(tmp_path: Path) -> str:
    ensure_staging(str(tmp_path / "staging"))
    return str(tmp_path / "staging")


def sync(staging: str, number: int, nonce: str, table: DeltaTable | None = None) -> None:
    table, folder = table or DeltaTable(staging), f"sync-{number}-{nonce}"
    row = {"kind": "cursor", "seqno": 0, "sync": number, "head": 0, "full": 1, "nonce": nonce, "raw": {"id": "r"}}
    Path(staging, folder).mkdir()
    add_rows(table, folder, pa.Table.from_pylist([row], STAGING_SCHEMA))
    commit_files(table, folder, number, nonce, rows=1)


def syncs(staging: str) -> list[tuple[int, str]]:
    rows = DeltaTable(staging).to_pyarrow_table().to_pylist()
    return sorted((row["sync"], row["nonce"]) for row in rows)


def maintain(staging: str) -> None:
    """Commits to staging without a sync, as maintenance does."""
    table = DeltaTable(staging)
    table.create_write_transaction([], mode="append", schema=table.schema())


@pytest.fixture
def after_the_first(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something happen right after the first commit of files."""
    real = DeltaTable.create_write_transaction

    def arrange(happen: Callable[[], object]) -> None:
        def commit(*args: object, **options: object) -> None:
            monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
            real(*args, **options)  # type: ignore[arg-type]
            happen()

        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)

    return arrange


def test_a_sync_is_tried_again_where_staging_was_only_maintained(staging: str) -> None:
    sync(staging, 1, "a")
    table = DeltaTable(staging)
    maintain(staging)
    sync(staging, 2, "b", table)
    assert syncs(staging) == [(1, "a"), (2, "b")]


def test_a_sync_that_another_was_faster_with_does_not_land(staging: str) -> None:
    sync(staging, 1, "a")
    table = DeltaTable(staging)
    sync(staging, 2, "theirs")
    with pytest.raises(OwnedError, match="another writer committed sync 2 to .*; this one did not land"):
        sync(staging, 2, "mine", table)
    assert syncs(staging) == [(1, "a"), (2, "theirs")]


def test_a_sync_whose_answer_is_lost_lands_once(
    staging: str, after_the_first: Callable[[Callable[[], object]], None]
) -> None:
    after_the_first(raises(OSError("the answer was lost")))
    sync(staging, 1, "a")
    assert syncs(staging) == [(1, "a")]


def test_a_sync_whose_answer_is_lost_has_landed_though_another_followed(
    staging: str, after_the_first: Callable[[Callable[[], object]], None]
) -> None:
    def follow() -> None:
        sync(staging, 2, "theirs")
        raises(OSError("the answer was lost"))()

    after_the_first(follow)
    sync(staging, 1, "a")
    assert syncs(staging) == [(1, "a"), (2, "theirs")]


def test_of_a_sync_to_a_staging_that_is_gone_is_said_that_it_did_not_land(
    staging: str, after_the_first: Callable[[Callable[[], object]], None]
) -> None:
    def remove() -> None:
        shutil.rmtree(staging)
        raises(OSError("no such file"))()

    after_the_first(remove)
    with pytest.raises(CommitRefusedError, match="the commit of sync 1 to .* did not land: no such file"):
        sync(staging, 1, "a")


@pytest.fixture
def raw(tmp_path: Path) -> str:
    """A raw of two files, of a record each."""
    location = str(tmp_path / "raw")
    ensure_raw(location)
    load(location)
    load(location)
    return location


def load(raw: str) -> None:
    line = Line("a line", Partition("t", 0), value=b"{}")
    Appender(raw).append_planned(lambda table: as_batch([line], table))


def compact(raw: str) -> None:
    table = DeltaTable(raw)
    assert rewrite(table, data_files(table, "seqno")) == 2


def seqnos_by_file(raw: str) -> list[tuple[int, int]]:
    return [(file.lowest, file.highest) for file in data_files(DeltaTable(raw), "seqno")]


def test_files_are_replaced_once_where_the_answer_is_lost_and_others_append(
    raw: str, after_the_first: Callable[[Callable[[], object]], None]
) -> None:
    def follow() -> None:
        load(raw)
        raises(OSError("the answer was lost"))()

    after_the_first(follow)
    compact(raw)
    assert seqnos_by_file(raw) == [(1, 2), (3, 3)]


def test_files_are_replaced_where_another_appended_first(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DeltaTable.create_write_transaction

    def late(*args: object, **options: object) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        load(raw)
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    compact(raw)
    assert seqnos_by_file(raw) == [(1, 2), (3, 3)]
    load(raw)
    assert seqnos_by_file(raw)[-1] == (4, 4)


def test_files_that_another_replaced_are_left_to_it(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DeltaTable.create_write_transaction

    def late(*args: object, **options: object) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        compact(raw)
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    with pytest.raises(OwnedError, match="another maintains"):
        compact(raw)
    assert seqnos_by_file(raw) == [(1, 2)]
    assert len(list(Path(raw).glob("rewritten-*"))) == 1


def test_where_there_is_no_room_files_are_not_replaced(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DeltaTable.create_write_transaction

    def full(*args: object, **options: object) -> None:
        with no_room():
            real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", full)
    with pytest.raises(CommitRefusedError, match="cannot be maintained: .*File too large"):
        compact(raw)
    assert seqnos_by_file(raw) == [(1, 1), (2, 2)]
    assert not [*Path(raw).glob("rewritten-*")]


def test_an_append_to_a_raw_that_cannot_be_read_any_more_has_an_unknown_outcome(
    raw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*args: object, **options: object) -> None:
        write_deltalake(*args, **options)  # type: ignore[arg-type]
        entry = newest_entry(raw)
        entry.write_bytes(entry.read_bytes()[:-20])
        raises(OSError("Input/output error"))()

    monkeypatch.setattr("zync.raw.append.write_deltalake", cut_off)
    with pytest.raises(CommitUnknownError, match="the append to raw at .* failed .*; the next append will see"):
        load(raw)
