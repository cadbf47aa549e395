"""Pages that are written from the code say what it says now."""

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.docs.pages import CHECKOUT, GENERATED


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """scripts/docs.py, as a module."""
    spec = importlib.util.spec_from_file_location("docs_generator", CHECKOUT / "scripts" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_no_generated_page_is_stale(generator: ModuleType) -> None:
    assert generator.stale() == [], "run: python scripts/docs.py"


def test_it_writes_the_pages_that_no_other_test_reads(generator: ModuleType) -> None:
    assert set(generator.pages()) == GENERATED


def test_a_page_that_was_changed_is_stale(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    page = CHECKOUT / "docs" / "reference" / "errors.md"
    monkeypatch.setattr(generator, "pages", lambda: {page: "another text\n"})
    assert generator.stale() == [page]


def test_every_key_of_the_config_has_a_meaning(generator: ModuleType) -> None:
    lines = [line for line in generator.config_page().splitlines() if line.startswith("| `")]
    assert lines
    assert [line for line in lines if line.endswith("|  |")] == []
