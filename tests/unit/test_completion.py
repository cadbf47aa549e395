"""What is offered at TAB, by the config and a small local lake, whatever state these are in."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

from zync.cli import app, completion
from zync.staging.commit import add_rows, commit_files
from zync.staging.table import STAGING_SCHEMA, ensure_staging

CONFIG = """
lake: here
topics: {order: {id: x}, "^shop.*": {id: x}, menu: {id: x}}
outputs: [{topic: whole, sql: rule.sql}, {topic: order, sql: rule.sql}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ZYNC_LAKE", "ZYNC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    Path("rule.sql").touch()
    return tmp_path


def line(*words: str) -> typer.Context:
    """The command line so far, as typer gives it to who offers words."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    context: typer.Context = command.make_context(command.name, rest, resilient_parsing=True)
    return context


def words(found: list[tuple[str, str]]) -> list[str]:
    return [word for word, _ in found]


def make_staging(location: Path, *rows: dict[str, Any]) -> None:
    """A staging with one sync, of those rows."""
    table = ensure_staging(str(location))
    cursor = {"kind": "cursor", "seqno": 0, "head": 9, "full": 1, "raw": {"id": "r", "version": 1}, "nonce": "x"}
    found = pa.Table.from_pylist(
        [{"sync": 1, "records": [], "count": 1, **row} for row in (cursor, *rows)], STAGING_SCHEMA
    )
    (location / "sync-1-x").mkdir()
    add_rows(table, "sync-1-x", found)
    commit_files(table, "sync-1-x", 1, "x", rows=found.num_rows)


def test_tables_are_raw_staging_and_those_in_the_lake() -> None:
    Path("zync.yaml").write_text(CONFIG)
    for place in ("here/staging2", "here/none", "there/other"):
        Path(place).mkdir(parents=True)
    for place in ("here/staging2", "there/other"):
        Path(place, "_delta_log").mkdir()
    assert words(completion.tables(line("cat"), "")) == ["raw", "staging", "staging2"]
    assert words(completion.tables(line("cat"), "st")) == ["staging", "staging2"]


def test_the_lines_own_lake_and_config_count_as_do_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lake" / "mine" / "_delta_log").mkdir(parents=True)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "other.yaml").write_text("topics: {carts: {id: x}}")
    assert words(completion.tables(line("cat", "--lake", "lake"), "m")) == ["mine"]
    assert words(completion.input_topics(line("sync-from", "--config", "shop/other.yaml"), "")) == ["carts"]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert words(completion.tables(line("cat", "--lake", "~/lake"), "m")) == ["mine"]
    monkeypatch.setenv("ZYNC_LAKE", "lake")
    monkeypatch.setenv("ZYNC_CONFIG", "shop/other.yaml")
    assert words(completion.tables(line("cat"), "m")) == ["mine"]
    assert words(completion.topics(line("cat"), "")) == ["carts"]


def test_topics_are_those_of_the_config_that_have_a_plain_name() -> None:
    Path("zync.yaml").write_text(CONFIG)
    assert words(completion.input_topics(line("sync-from"), "")) == ["order", "menu"]
    assert words(completion.topics(line("cat"), "")) == ["order", "menu", "whole"]


def test_kinds_and_states_are_those_that_the_commands_take() -> None:
    assert words(completion.kinds(line("cat"), "d")) == ["done", "duplicate", "discarded"]
    assert "quarantined" in words(completion.states(line("txn", "list"), ""))
    assert words(completion.states(line("txn", "release"), "")) == ["in-flight", "expired"]


def test_transactions_are_those_that_a_command_is_about() -> None:
    records = [{"first": 3, "last": 3}]
    place = {"topic": "order", "partition": 0, "offset": 17}
    make_staging(
        Path("lake/staging"),
        {"kind": "done", "seqno": 1, "txn": "10"},
        {"kind": "done", "seqno": 2, "txn": "11"},
        {"kind": "pending", "seqno": 4, "txn": "571:5", "records": records},
        {"kind": "expired", "seqno": 5, "txn": "12", "records": records},
        {"kind": "quarantined", "seqno": 6, "txn": "13", "records": records},
        {"kind": "quarantined", "seqno": 7, "kafka": place, "records": records},
        {"kind": "pending", "seqno": 8, "txn": "$(rm -rf ~)", "records": records},
        {"kind": "pending", "seqno": 9, "txn": "--all", "records": records},
    )
    assert dict(completion.transactions(line("txn", "show"), "")) == {
        "571:5": "in flight",
        "12": "expired",
        "13": "quarantined",
        "order/0/17": "quarantined",
        "11": "settled",
        "10": "settled",
    }
    assert words(completion.in_flight(line("txn", "release"), "")) == ["571:5", "12"]
    assert words(completion.in_flight(line("txn", "release", "12"), "")) == ["571:5"]
    assert words(completion.set_aside(line("dlq", "redrive"), "")) == ["13", "order/0/17"]
    assert words(completion.set_aside(line("dlq", "show"), "o")) == ["order/0/17"]


def test_no_more_than_200_are_offered() -> None:
    make_staging(Path("lake/staging"), *({"kind": "done", "seqno": n, "txn": f"t{n}"} for n in range(1, 301)))
    found = words(completion.transactions(line("txn", "show"), ""))
    assert (found[0], len(found)) == ("t300", 200)
    assert words(completion.transactions(line("txn", "show"), "t30")) == ["t300", "t30"]


def test_a_large_staging_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    make_staging(Path("lake/staging"), {"kind": "done", "seqno": 1, "txn": "10"})
    assert words(completion.transactions(line("txn", "show"), "")) == ["10"]
    monkeypatch.setattr(completion, "SMALL_STAGING", 100)
    assert completion.transactions(line("txn", "show"), "") == []


@pytest.mark.parametrize("config", ["topics: [", "lake: s3://bucket/lake", "lake: rule.sql", "lake: 'a{b'"])
def test_where_nothing_can_be_read_nothing_is_offered_but_what_is_always_there(config: str) -> None:
    Path("zync.yaml").write_text(config)
    assert words(completion.tables(line("cat"), "")) == ["raw", "staging"]
    assert completion.topics(line("cat"), "") == []
    assert completion.transactions(line("txn", "show"), "") == []


@pytest.mark.parametrize(
    ("typed", "last", "joined", "before"),
    [
        (["zync", "txn", "show", ""], 3, ["zync", "txn", "show", ""], ""),
        (["zync", "txn", "show", "571", ":", "5"], 5, ["zync", "txn", "show", "571:5"], "571:"),
        (["zync", "txn", "show", "571", ":"], 4, ["zync", "txn", "show", "571:"], "571:"),
        (["zync", "txn", "release", "571", ":", "5", "6"], 6, ["zync", "txn", "release", "571:5", "6"], ""),
        (["zync", "cat", "--lake", "=", "la"], 4, ["zync", "cat", "--lake=la"], ""),
        (["zync", "cat", "--lake", "="], 3, ["zync", "cat", "--lake="], ""),
        (["zync", "cat", "--topic", "=", "a", ":", "b"], 6, ["zync", "cat", "--topic=a:b"], "a:"),
        (["zync", "cat", "--lake", "=", "lake", ""], 5, ["zync", "cat", "--lake=lake", ""], ""),
        (["zync", "cat", "raw", "--limit", "5"], 2, ["zync", "cat", "raw"], ""),
    ],
)
def test_words_that_bash_cut_up_are_joined(typed: list[str], last: int, joined: list[str], before: str) -> None:
    assert completion.join_words(typed, last) == (joined, before)
