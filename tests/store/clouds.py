"""What the tests of Google Cloud Storage and Azure share: commands on the demo's lake, and Spark's log store."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.conftest import ZYNC
from tests.store.azure import KEY
from zync.lake.table import existing_table

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def runner(demo: Path, lake: str, secret: str, more: str = "") -> Run:
    """Returns a function that runs a command to its end, in a process of its own, on the demo's lake in a store."""
    config = (demo / "zync.yaml").read_text().replace("lake: ./lake", f"lake: {lake}")
    (demo / "zync.yaml").write_text(f"{config}\ndeliver: {{tables: {{}}}}\n{more}")

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run([*ZYNC, *words], cwd=demo, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert secret not in done.stdout + done.stderr
        return done

    return run


def check_delivered(run: Run, lake: str) -> None:
    """Checks that the demo's orders are in their table, and that the other commands end cleanly and find no fault."""
    orders = existing_table(f"{lake}/tables/order", "the test").to_pyarrow_table()
    assert sorted(orders["customerID"].to_pylist()) == [1, 2]
    rows = [json.loads(line) for line in run("cat", "staging", "--kind", "output").stdout.splitlines()]
    assert [row["key"]["customerID"] for row in rows] == [1, 2]
    assert run("snapshot").stdout.startswith("sync 1")
    assert "4" in run("query", "SELECT count(*) AS n FROM raw").stdout
    run("maintain", "staging")
    run("maintain", "tables")
    run("status")
    run("verify")


def check_writers(lake: str, folder: Path) -> None:
    """Checks that of four processes that load records into a new raw at once each lands, with seqnos of its own."""
    words, loads = ("--lake", lake), []
    for number in range(4):
        (folder / f"{number}.jsonl").write_text(json.dumps({"topic": f"t{number}", "value": {"a": number}}))
        loads.append(subprocess.Popen([*ZYNC, "load", "raw", f"{number}.jsonl", *words], cwd=folder))
    assert [load.wait(120) for load in loads] == [0] * 4
    done = subprocess.run([*ZYNC, "cat", "raw", *words], cwd=folder, capture_output=True, text=True, check=True)
    assert [json.loads(line)["seqno"] for line in done.stdout.splitlines()] == [1, 2, 3, 4]


def record(folder: Path) -> str:
    """Writes a file with a record to load, and returns its name."""
    (folder / "a.jsonl").write_text(json.dumps({"topic": "t", "value": {"a": 1}}))
    return "a.jsonl"


def failure(words: tuple[str, ...], folder: Path, variables: Mapping[str, str], secret: str = KEY) -> str:
    """Returns the one line that a command prints to standard error as it fails."""
    done = subprocess.run(
        [*ZYNC, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode in (1, 2), f"{done.returncode}\n{done.stdout}{done.stderr}"
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert secret not in lines[0]
    return lines[0]


_COMMITS = """
import sys, threading
from py4j.protocol import Py4JJavaError
from zync import spark_session

location, name = sys.argv[1:]
spark = spark_session("local[1]", brief=True, lake=location)
jvm, hadoop = spark._jvm, spark._jsc.hadoopConfiguration()
base = f"zync.base.{location}"

def commit(version, text, settings=hadoop):
    path = jvm.org.apache.hadoop.fs.Path(f"{location}/_delta_log/{version:020}.json")
    actions = jvm.java.util.Collections.singletonList(text).iterator()
    try:
        getattr(jvm.zync, name)(settings).write(path, actions, False, settings)
        return "landed"
    except Py4JJavaError as error:
        return error.java_exception.toString()

print(commit(0, "first"))
print(commit(0, "second"))
for version in range(1, 6):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(commit(version, "at once"))) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(sorted(answer.partition(":")[0] for answer in answers))
jvm.java.lang.System.out.flush()
sys.stdin.readline()  # meanwhile another process writes version 6
hadoop.set(base, "5")
print(commit(7, "planned from version 5"))
hadoop.set(base, "6")
print(commit(7, "planned from version 6"))
path = jvm.org.apache.hadoop.fs.Path(f"{location}/_delta_log/{5:020}.json")
listed = getattr(jvm.zync, name)(hadoop).listFrom(path, hadoop)
names = []
while listed.hasNext(): names.append(listed.next().getPath().getName())
print([name[18:] for name in names])
"""


def commit_by_spark(location: str, name: str, other: Callable[[], None]) -> list[str]:
    """Returns what became of commits by Spark's log store, of which two are made at once.

    Args:
        location: The table's location.
        name: The class of the log store.
        other: Writes version 6 of the table's log, after this process's version 5.
    """
    command = [sys.executable, "-c", _COMMITS, location, name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert process.stdout
        assert process.stdin
        lines = [process.stdout.readline().strip() for _ in range(7)]
        other()
        process.stdin.write("\n")
        process.stdin.flush()
        lines += [line.strip() for line in process.stdout]
        assert process.wait(60) == 0
        return lines
    finally:
        process.kill()
        process.wait()


def check_commits(lines: list[str]) -> None:
    """Checks that one of two commits of a version is refused, and one after another process's version as well."""
    assert lines[0] == "landed"
    assert lines[1].startswith("java.nio.file.FileAlreadyExistsException")
    assert lines[2:7] == [str(["java.nio.file.FileAlreadyExistsException", "landed"])] * 5
    assert "ZYNC_CONCURRENT_WRITE: another process wrote" in lines[7]
    assert lines[8] == "landed"
    assert lines[9] == str(["05.json", "06.json", "07.json"])
