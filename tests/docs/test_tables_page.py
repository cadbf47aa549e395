"""The page about raw and staging names each of their columns, and each kind of row."""

import re

from tests.docs.pages import page
from zync.raw.table import RAW_SCHEMA
from zync.staging.table import STAGING_SCHEMA

_, RAW, STAGING = re.split(r"(?m)^## ", page("docs/reference/tables.md").text)
_, KINDS, COLUMNS, _ = re.split(r"(?m)^### ", STAGING)


def first_cells(text: str) -> list[str]:
    return re.findall(r"(?m)^\| `([\w/<>]+)` \|", text)


def test_each_column_of_raw_is_on_the_page() -> None:
    assert [cell for cell in first_cells(RAW) if not cell.startswith("zync/")] == RAW_SCHEMA.names


def test_each_column_of_staging_is_on_the_page() -> None:
    assert first_cells(COLUMNS) == STAGING_SCHEMA.names


def test_page_and_glossary_have_the_same_kinds() -> None:
    listed = re.search(r"(?m)^### kind\n\n.*: (.*);", page("docs/glossary.md").text)
    assert listed
    assert set(first_cells(KINDS)) == set(re.findall(r"\w+", listed[1])) - {"or"}
