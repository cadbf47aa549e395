"""What pages point to within the repository is there. (Links between pages of the site: `mkdocs build --strict`.)"""

import re

import pytest

from tests.docs.pages import CHECKOUT, PAGES, page

LINKS = sorted(
    {link for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page("README.md").prose) if "://" not in link}
)
PATHS = sorted(
    {
        (one.name, span.partition("::")[0])
        for one in PAGES
        for span in one.spans
        if re.fullmatch(
            r"(?:tests|deploy|examples|bench|demo|scripts|sql|docs)/[\w./-]*(?:::\w+)?|[A-Z]+\.md|LICENSE", span
        )
    }
)


@pytest.mark.parametrize("link", LINKS)
def test_a_link_of_the_readme_leads_somewhere(link: str) -> None:
    assert (CHECKOUT / link).exists()


@pytest.mark.parametrize("anchor", re.findall(r"\]\(([^)#]+#[^)]*)\)", page("README.md").prose))
def test_a_link_into_a_page_leads_to_a_heading(anchor: str) -> None:
    path, _, wanted = anchor.partition("#")
    headings = re.findall(r"(?m)^#+ (.+)$", (CHECKOUT / path).read_text(encoding="utf-8"))
    assert wanted in {re.sub(r"[^\w-]+", "-", heading.lower()).strip("-") for heading in headings}


@pytest.mark.parametrize(("page_name", "path"), PATHS)
def test_a_path_that_a_page_names_is_there(page_name: str, path: str) -> None:
    assert (CHECKOUT / path).exists(), page_name
