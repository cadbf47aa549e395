"""A table is a name below the lake, a path or a URI; and delta-rs and Spark find the same one."""

from pathlib import Path

import pytest

from zync.lake.paths import for_spark, is_local, locate, table_name


@pytest.mark.parametrize(
    ("table", "lake", "expected"),
    [
        ("raw", "/lake", "/lake/raw"),
        ("raw", "/lake/", "/lake/raw"),
        ("raw", "s3://bucket/lake", "s3://bucket/lake/raw"),
        ("raw", "s3://bucket/lake//", "s3://bucket/lake/raw"),
        ("raw", "file:///a%20lake", "/a lake/raw"),
        ("/elsewhere/raw/", "/lake", "/elsewhere/raw"),
        ("s3://other/raw", "/lake", "s3://other/raw"),
        ("file:///elsewhere/a%23b", "s3://bucket", "/elsewhere/a#b"),
        ("tables", "/lake", "/lake/tables"),
    ],
)
def test_a_table_is_below_the_lake_unless_it_is_a_path_itself(table: str, lake: str, expected: str) -> None:
    assert locate(table, lake) == expected


def test_a_relative_path_is_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("raw", "lake") == str(tmp_path / "lake" / "raw")
    assert locate("./raw", "lake") == str(tmp_path / "raw")


def test_only_a_uri_is_not_local() -> None:
    assert is_local("/lake/raw")
    assert not is_local("s3://bucket/raw")


def test_spark_is_given_a_scheme_and_the_letters_as_they_are() -> None:
    assert for_spark("/a lake/raw#1") == "file:///a lake/raw#1"
    assert for_spark("file:///a%20lake/raw") == "file:///a lake/raw"
    assert for_spark("s3://bucket/raw") == "s3://bucket/raw"


@pytest.mark.parametrize("location", ["/lake/raw", "s3://bucket/lake/raw", "s3://bucket/lake/raw/"])
def test_a_table_has_the_name_of_its_folder(location: str) -> None:
    assert table_name(location) == "raw"
