"""Tables and topics have the names that OpenLineage's naming conventions give them."""

import pytest

from zync.observe.datasets import Dataset, table, topics


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/data/lake/raw", "file", "/data/lake/raw"),
        ("s3://bucket/lake/raw", "s3://bucket", "lake/raw"),
        ("s3a://bucket/lake/raw", "s3://bucket", "lake/raw"),
        ("gs://bucket/lake/raw", "gs://bucket", "lake/raw"),
        (
            "abfss://container@account.dfs.core.windows.net/lake/raw",
            "abfss://container@account.dfs.core.windows.net",
            "lake/raw",
        ),
    ],
)
def test_tables_have_the_names_that_openlineage_gives_them(location: str, namespace: str, name: str) -> None:
    assert table(location) == Dataset(namespace, name)


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("kafka-1:9093,kafka-2:9093", "kafka://kafka-1:9093"),
        ("kafka", "kafka://kafka:9092"),
        ("SASL_SSL://kafka:9093", "kafka://kafka:9093"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_topics_have_the_names_that_openlineage_gives_them(servers: str, namespace: str) -> None:
    assert topics(servers, ["orders"]) == [Dataset(namespace, "orders")]


def test_topics_of_a_kafka_that_is_not_known_are_left_out() -> None:
    assert topics(None, ["orders"]) == []
