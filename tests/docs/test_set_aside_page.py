"""The page about what is set aside has the reasons that the code gives, and no others."""

import re
from itertools import pairwise

import pytest

from tests.docs.pages import CHECKOUT, page

PAGE = page("docs/explanation/set-aside.md")
CODE = "\n".join(
    path.read_text()
    for folder in ("zync", "sql")
    for path in sorted((CHECKOUT / folder).rglob("*"))
    if path.suffix in (".py", ".sql", ".java")
)
JOINED = re.sub(r'"\s*\n\s*f?"', "", CODE)
"""The code, with texts that go on in the next line as one."""
_DIFFERS = re.compile(r"…|^value|^key|Avro(?= as schema)|protobuf(?= as schema)")
"""What the code has from elsewhere within a reason."""


def reasons() -> list[str]:
    """What the first columns of tables have that are headed `reason` or `cause`."""
    found, within = list[str](), False
    for before, line in pairwise(PAGE.text.splitlines()):
        if line.startswith("|---"):
            within = before.startswith(("| reason |", "| cause |"))
        elif not line.startswith("|"):
            within = False
        elif within and (first := re.search(r"`([^`]+)`", line.split("|")[1])):
            found.append(first[1])
    return [one for one in found if not one.startswith("[")]


@pytest.mark.parametrize("reason", reasons())
def test_a_reason_that_the_page_has_is_one_of_the_codes(reason: str) -> None:
    parts = [part.strip() for part in _DIFFERS.split(reason)]
    assert not [part for part in parts if part not in JOINED]


def test_the_page_has_the_reasons_of_statements() -> None:
    """Those that SQL gives stand in quotes behind THEN."""
    statements = "\n".join(path.read_text() for path in sorted((CHECKOUT / "sql").rglob("*.sql")))
    given = {one for one in re.findall(r"(?:THEN|ELSE) '([^']* [^']*)'", statements) if one != "pending"}
    assert given
    assert not [one for one in sorted(given) if one not in PAGE.text]
