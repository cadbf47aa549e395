"""What a process runs is what it read at its start, and what it digested."""

from pathlib import Path

import pytest

from zync.config.model import Config, OutputRule, Topic
from zync.errors import UsageError
from zync.rules.run import rule_texts


@pytest.mark.parametrize("how", ["sql", "python"])
def test_a_rule_that_is_saved_meanwhile_is_neither_run_nor_digested(tmp_path: Path, how: str) -> None:
    file = tmp_path / "rule"
    file.write_text("SELECT 1")
    rule = OutputRule("out", sql=file) if how == "sql" else OutputRule("out", python=f"{file}:rule")
    config = Config(outputs=(rule,))
    before = dict(config.digests)
    file.write_text("SELECT 2")
    assert config.outputs[0].text == "SELECT 1"
    assert config.digests == before
    assert Config(outputs=(OutputRule("out", rule.sql, rule.python),)).digests["rules"] != before["rules"]


def test_a_schema_that_is_saved_meanwhile_is_neither_used_nor_digested(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text('"int"')
    config = Config(topics={"t": Topic("value:txn", value="avro", avro_schema=file)})
    before = dict(config.digests)
    file.write_text('"long"')
    assert config.topics["t"].schema_texts == {"value": '"int"'}
    assert config.digests == before


def test_a_rule_that_cannot_be_read_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "latin.sql").write_bytes("SELECT 'ä'".encode("latin-1"))
    for name in ("latin.sql", "missing.sql"):
        with pytest.raises(UsageError, match=rf"rule {name} \(output out\) cannot be read"):
            rule_texts(Config(outputs=(OutputRule("out", sql=tmp_path / name),)))
