"""JSON Lines that are too much for one commit."""

from pathlib import Path

import pytest

from zync.errors import UsageError
from zync.raw import jsonl


def test_more_than_a_commit_holds_is_refused_by_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MOST_BYTES", 19)
    records = tmp_path / "records.jsonl"
    records.write_text('{"topic":"t","value":"0123456789"}\n' * 3)
    with pytest.raises(UsageError, match=r"records\.jsonl:2: .* load the files in several calls.* Nothing was loaded"):
        jsonl.load(str(tmp_path / "raw"), [str(records)])
    assert not (tmp_path / "raw").exists()
