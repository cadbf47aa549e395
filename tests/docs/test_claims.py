"""What the documents say that tests show is shown by tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = [
    (document.name, *found)
    for document in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text())
]


def test_documents_name_tests() -> None:
    assert NAMED


@pytest.mark.parametrize(("document", "file", "test"), NAMED)
def test_a_test_that_a_document_names_is_there(document: str, file: str, test: str) -> None:
    assert f"def {test}(" in (ROOT / file).read_text()
