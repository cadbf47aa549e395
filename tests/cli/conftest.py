"""What tests of the command line share: a config, and how a mistake is told."""

import subprocess
from pathlib import Path


def one_line(done: "subprocess.CompletedProcess[str]", code: int) -> str:
    """The one line on standard error of a command that failed with that code."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def a_config(folder: Path, fields: str, rule: str) -> None:
    (folder / "r.sql").write_text(rule)
    (folder / "zync.yaml").write_text(f"topics:\n  a:\n    {fields}\noutputs: [{{topic: out, sql: r.sql}}]\n")
