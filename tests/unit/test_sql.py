"""What enters SQL is quoted; and what Python and SQL must agree on is written once."""

import re

import pytest

from zync import sql
from zync.config import model
from zync.resources import data_folder

FOLDER = data_folder("sql")
FILES = sorted(str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.sql"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "'a'"), ("", "''"), ("o'clock", r"'o\'clock'"), ("a\\", r"'a\\'"), (r"\'", r"'\\\''"), ("a\nb", "'a\nb'")],
)
def test_a_literal_is_the_text_whatever_it_holds(text: str, expected: str) -> None:
    assert sql.literal(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("a", "`a`"), ("a.b", "`a.b`"), ("a`b", "`a``b`"), ("``", "``````")])
def test_a_name_is_quoted_whatever_it_holds(text: str, expected: str) -> None:
    assert sql.name(text) == expected


def test_columns_are_aliased_by_quoted_names() -> None:
    assert sql.aliased({"a": "1", "b`": "x + 1"}) == ["1 AS `a`", "x + 1 AS `b```"]
    assert sql.options({"a": "'"}) == r"map('a', '\'')"


def test_a_slot_in_what_fills_a_slot_is_text() -> None:
    filled = sql.statement("operate/members", settled_kinds="'{{settled_kinds}}'")
    assert "IN ('{{settled_kinds}}')" in filled


def test_a_slot_that_nobody_fills_is_an_error() -> None:
    with pytest.raises(KeyError):
        sql.statement("operate/members")


@pytest.mark.parametrize("file", FILES)
def test_a_statement_says_what_comes_in_and_what_goes_out(file: str) -> None:
    text = (FOLDER / file).read_text()
    head = "\n".join(line for line in text.splitlines() if line.startswith("--"))
    assert re.search(r"^-- In: ", head, re.MULTILINE)
    assert re.search(r"Out: ", head)


@pytest.mark.parametrize("file", FILES)
def test_names_that_python_has_come_to_sql_by_slots(file: str) -> None:
    text = (FOLDER / file).read_text()
    code = "\n".join(line.partition("--")[0] for line in text.splitlines())
    for constant in (model.RESERVED_TOPIC, model.PROGRESS_TOPIC):
        assert f"'{constant}" not in code
