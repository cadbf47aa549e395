"""The modules beside a Python rule: which are found, and what they do to the digest of the rules."""

import sys
from pathlib import Path

import pytest

from zync.config.model import Config, OutputRule
from zync.errors import UsageError
from zync.project.load import load

CONFIG = "topics: {{a: {{id: value:txn}}}}\noutputs:\n  - {{topic: out, python: {rule}}}\n"


def write(folder: Path, files: dict[str, str]) -> OutputRule:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return OutputRule("out", python=f"{folder}/rule.py:rule")


def digest(folder: Path) -> str:
    return Config(outputs=(OutputRule("out", python=f"{folder}/rule.py:rule"),)).digests["rules"]


FILES = {
    "rule.py": "import json\nfrom tax import vat\n\ndef rule(records):\n    import rates.late as late\n",
    "tax.py": "import countries\n",
    "countries.py": "import tax, itself\n",
    "rates/__init__.py": "from . import late\n",
    "rates/late.py": "import fees\n",
    "rates/table.csv": "1,2",
    "rates/deep/__init__.py": "",
    "fees.py": "",
    "unused.py": "",
    "notes.txt": "",
}


def test_what_a_rule_imports_is_read_and_packages_whole(tmp_path: Path) -> None:
    rule = write(tmp_path, FILES | {"rates/__pycache__/late.pyc": ""})
    assert list(rule.modules) == [
        "countries.py",
        "fees.py",
        "rates/__init__.py",
        "rates/deep/__init__.py",
        "rates/late.py",
        "rates/table.csv",
        "tax.py",
    ]


@pytest.mark.parametrize("changed", ["countries.py", "rates/table.csv"])
def test_a_module_that_changes_changes_the_digest_of_the_rules(tmp_path: Path, changed: str) -> None:
    write(tmp_path, FILES)
    before = digest(tmp_path)
    write(tmp_path, {"unused.py": "x = 1\n", "rates/__pycache__/late.pyc": "x"})
    assert digest(tmp_path) == before
    write(tmp_path, {changed: "# other\n"})
    assert digest(tmp_path) != before


def test_a_module_that_is_saved_meanwhile_is_neither_run_nor_digested(tmp_path: Path) -> None:
    config = Config(outputs=(write(tmp_path, FILES),))
    before = dict(config.digests)
    write(tmp_path, {"tax.py": "vat = 2\n"})
    assert config.outputs[0].modules["tax.py"] == b"import countries\n"
    assert config.digests == before


def test_a_rule_without_modules_keeps_the_digest_that_it_had(tmp_path: Path) -> None:
    write(tmp_path, {"rule.py": "import json\n\ndef rule(records):\n    return records\n", "unused.py": ""})
    assert digest(tmp_path) == "2782823ec745fc83"


@pytest.mark.parametrize("text", ["import tax\n\ndef rule(:\n", "import tax\0\n"])
def test_a_rule_that_is_no_python_imports_nothing_yet(tmp_path: Path, text: str) -> None:
    assert write(tmp_path, FILES | {"rule.py": text}).modules == {}


@pytest.mark.parametrize(("name", "where"), [("json", "Python's standard library"), ("yaml", "yaml/__init__.py")])
def test_a_module_with_the_name_of_an_installed_one_is_refused(tmp_path: Path, name: str, where: str) -> None:
    write(tmp_path, {"etl/rule.py": f"import {name}\n", f"etl/{name}.py": ""})
    (tmp_path / "zync.yaml").write_text(CONFIG.format(rule="etl/rule.py"))
    with pytest.raises(UsageError, match=rf"zync\.yaml:3: the rule rule\.py .* imports {name}, .*{where}"):
        load(tmp_path / "zync.yaml")
    write(tmp_path, {"etl/rule.py": "import os\n"})  # which does not import it
    assert load(tmp_path / "zync.yaml").outputs[0].modules == {}


def test_a_copy_that_python_finds_elsewhere_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"etl/rule.py": "import zync_tax_of_tests\n", "etl/zync_tax_of_tests.py": "x = 1\n"})
    write(tmp_path, {"shipped/zync_tax_of_tests.py": "x = 1\n"})
    (tmp_path / "zync.yaml").write_text(CONFIG.format(rule="etl/rule.py"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "shipped"), *sys.path])
    assert list(load(tmp_path / "zync.yaml").outputs[0].modules) == ["zync_tax_of_tests.py"]
    write(tmp_path, {"shipped/zync_tax_of_tests.py": "x = 2\n"})
    with pytest.raises(UsageError, match="shipped/zync_tax_of_tests.py"):
        load(tmp_path / "zync.yaml")
