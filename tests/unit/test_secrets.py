"""What was read from the environment or a file is not printed, in whatever way it is quoted there."""

import json

import pytest

from zync.config.model import Config
from zync.config.secrets import masked

NAMES = {"correct horse": "${PASSWORD}"}


def test_a_secret_is_shown_as_the_config_has_it() -> None:
    assert masked("no user me:correct horse at Kafka", NAMES) == "no user me:${PASSWORD} at Kafka"


@pytest.mark.parametrize("secret", ['it\'s "quoted"', "back\\slash", "tab\there", "naïve €", "'", "a'b\\'c"])
@pytest.mark.parametrize(
    "quoted",
    [repr, json.dumps, lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"],
    ids=["Python", "JSON", "SQL"],
)
def test_a_secret_is_found_however_it_is_quoted(secret: str, quoted: "type[str]") -> None:
    secret = f"correct horse {secret}"
    found = masked(f"cannot parse {quoted(secret)}.", {secret: "${IT}"})
    assert "correct horse" not in found
    assert "${IT}" in found


def test_each_line_of_a_secret_of_several_is_one() -> None:
    key = "-----BEGIN-----\nMIIEvQ\n-----END-----"
    assert masked("line 2: MIIEvQ", {key: "${file:key.pem}"}) == "line 2: ${file:key.pem}"


def test_of_two_secrets_the_longer_is_replaced_first() -> None:
    assert masked("secret-and-more", {"secret": "${A}", "secret-and-more": "${B}"}) == "${B}"


@pytest.mark.parametrize("text", ["a", "on", "yes"])
def test_a_text_of_three_letters_is_no_secret(text: str) -> None:
    assert masked(f"value {text}", {text: "${IT}"}) == f"value {text}"


def test_where_kafka_and_the_lake_are_is_no_secret() -> None:
    config = Config(
        lake="/lake",
        kafka={"bootstrap.servers": "kafka:9092", "sasl.password": "correct horse"},
        elsewhere={"kafka:9092": "${SERVERS}", "/lake": "${LAKE}", "correct horse": "${PASSWORD}"},
    )
    said = "kafka:9092 does not let us in to /lake with correct horse"
    assert config.as_written(said) == "kafka:9092 does not let us in to /lake with ${PASSWORD}"


def test_secrets_are_in_no_text_of_the_config() -> None:
    assert "correct horse" not in repr(Config(elsewhere={"correct horse": "${PASSWORD}"}))
