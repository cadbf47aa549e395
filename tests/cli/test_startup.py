"""The archive of classes that a JVM starts from."""

import sys
from pathlib import Path

import pytest

from zync.spark.class_archive import jvm_options


def test_an_archive_that_was_cut_off_is_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert jvm_options() == ""
    archive = tmp_path / "share" / "zync" / "classes-10.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"0123456789")
    assert f"-XX:SharedArchiveFile={archive}" in jvm_options()
    archive.write_bytes(b"01234")
    assert jvm_options() == ""
