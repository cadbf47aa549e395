"""The site builds without a warning and needs nothing from elsewhere, and the README stays short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT, DOCS, page

README = page("README.md")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=CHECKOUT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    for source in DOCS.rglob("*.md"):
        name = source.relative_to(DOCS).with_suffix("")
        assert (site / ("" if name.name == "index" else name) / "index.html").exists(), source


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
    for html in site.rglob("*.html"):
        assert loads.findall(html.read_text(encoding="utf-8")) == [], html


def test_the_readme_is_short() -> None:
    assert len(README.text.encode()) <= 8192
    assert max(map(len, README.text.splitlines())) <= 600


@pytest.mark.parametrize("source", [CHECKOUT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name)
def test_no_table_has_a_bar_within_a_cell(source: Path) -> None:
    """Readers of Markdown differ about it: some show the backslash that escapes it, others end the cell."""
    assert [
        line for line in source.read_text(encoding="utf-8").splitlines() if line.startswith("|") and "\\|" in line
    ] == []
