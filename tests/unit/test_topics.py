"""Which of the config's topics a record is of: names before regexes, and zync's own topic before all."""

import re
from pathlib import Path

import pytest

from zync.config import topic_names, topics
from zync.config.model import Config, Topic
from zync.errors import UsageError
from zync.project.load import load


def config(*names: str) -> Config:
    return Config(topics={name: Topic(id=f"id of {name}") for name in names})


def test_names_claim_records_before_regexes_do_and_regexes_in_the_order_of_the_file() -> None:
    assert topics.ordered(config("^b", "shop.a", "^a", "x")) == ["shop.a", "x", "^b", "^a"]


def test_an_expression_by_topic_asks_for_zyncs_own_then_names_then_regexes() -> None:
    found = topics.by_topic(config("^shop", "shop.a"), {"^shop": "1", "shop.a": "2"}, reserved="0")
    assert found == "CASE WHEN topic = '__zync' THEN 0 WHEN topic = 'shop.a' THEN 2 WHEN topic RLIKE '^shop' THEN 1 END"


def test_only_the_topic_that_claims_a_record_counts() -> None:
    found = topics.claimed_by(config("^shop", "shop.a"), ["^shop"])
    assert found.index("'shop.a' THEN false") < found.index("'^shop' THEN true")
    assert "'__zync' THEN false" in found


def test_names_and_regexes_are_literals_in_sql() -> None:
    assert topics.matches("o'clock\\") == "topic = 'o\\'clock\\\\'"
    assert topics.matches(r"^shop\..*") == r"topic RLIKE '^shop\\..*'"
    assert topics.configured(config()) == "false"
    assert topics.configured(config("a", "^b")) == "topic = 'a' OR topic RLIKE '^b'"


def test_a_name_that_a_regex_covers_is_not_asked_for_by_itself() -> None:
    assert config("shop.a", "^shop", "other").sources == ("^shop", "other")


@pytest.mark.parametrize("text", ["^(", "^a{99999999999}", "^" + "(" * 2000 + ")" * 2000, "^a++*"])
def test_what_python_cannot_compile_is_no_regex(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a regular expression: "):
        topic_names.compile_regex(text)


def test_a_regex_is_looked_for_from_its_beginning_on_and_need_not_reach_the_end() -> None:
    assert topic_names.is_topic("shop.orders", "^shop")
    assert not topic_names.is_topic("my.shop", "^shop")


def test_a_name_is_the_whole_name() -> None:
    assert topic_names.is_topic("shop.a", "shop.a")
    assert not topic_names.is_topic("shop.a", "shop")
    assert not topic_names.is_topic("shop_a", "shop.a")


def test_a_topic_that_is_no_regex_for_python_is_a_mistake_in_the_config(tmp_path: Path) -> None:
    (tmp_path / "zync.yaml").write_text("topics:\n  ^[: {id: x}")
    with pytest.raises(UsageError, match=re.escape("zync.yaml:2: topics: '^[' is not a regular expression: ")):
        load(tmp_path / "zync.yaml")
