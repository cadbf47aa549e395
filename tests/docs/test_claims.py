"""What the documents say that tests show is shown by tests that are there."""

import re

import pytest

from tests.docs.pages import CHECKOUT, PAGES

NAMED = [(page.name, *named) for page in PAGES for named in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.text)]


def test_documents_name_tests() -> None:
    assert NAMED


@pytest.mark.parametrize(("document", "file", "test"), NAMED)
def test_a_test_that_a_document_names_is_there(document: str, file: str, test: str) -> None:
    assert f"def {test}(" in (CHECKOUT / file).read_text(), document
