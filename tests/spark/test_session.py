"""What the session is made with, and what it keeps."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import Pipeline
from zync import java
from zync.errors import UsageError
from zync.spark.frames import RowCache
from zync.spark.session import check_log_store

CODE = """
import json, os, subprocess
from zync.spark.session import session

word = os.environ["WORD"]
keys = (
    "fs.s3a.secret.key",
    "fs.s3a.encryption.key",
    "fs.azure.account.key.me.dfs.core.windows.net",
    "google.cloud.auth.service.account.private.key",
)
secrets = {f"spark.hadoop.{key}": word for key in keys}
spark = session(properties={**secrets, "spark.hadoop.fs.s3a.endpoint": f"not {word[1:]}"})
seen = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
known = {spark.sparkContext._jsc.hadoopConfiguration().get(key) for key in keys}
print(json.dumps([word in seen, f"not {word[1:]}" in seen, known == {word}]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a process another host's name")
def test_spark_starts_where_the_hosts_name_has_no_address() -> None:
    """As in a container without a network."""
    code = "from zync.spark.session import session; print(session(brief=True).range(3).count())"
    command = ["unshare", "--uts", "sh", "-c", 'hostname nowhere && exec "$0" -c "$1"', sys.executable, code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["3"]


def test_secrets_are_in_no_command_line() -> None:
    """Which others on the host see; other properties are in the JVM's, as spark-submit has it."""
    environment = {**os.environ, "WORD": "zhush-hush"}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [False, True, True]


def test_a_session_keeps_nothing_of_the_syncs_it_made(pipeline: Pipeline, txn: Any) -> None:
    context = pipeline.spark.sparkContext._jsc  # noqa: SLF001

    def kept() -> set[int]:
        """All but what Delta itself keeps of tables."""
        return {
            n for n, one in context.getPersistentRDDs().items() if not str(one.name()).startswith("Delta Table State")
        }

    before = kept()
    pipeline.load(("a", txn(1, 2)), ("a", txn(2, 1)))
    pipeline.sync()
    pipeline.load(("b", txn(1, 2)))
    assert pipeline.sync().transactions == 1
    until, since = time.monotonic() + 60, kept() - before
    while since & kept():  # what other workers' syncs keep goes when they end
        assert time.monotonic() < until
        time.sleep(0.05)
    views = pipeline.spark.sql("SHOW VIEWS").collect()
    assert views == []  # a view holds the rows kept under it, and what is kept next comes with a copy of the views


def test_kept_rows_that_are_lost_are_made_anew(spark: Any) -> None:
    jvm = spark._jvm  # noqa: SLF001
    with RowCache(spark) as row_cache:
        kept = row_cache.keep(spark.range(10).selectExpr("id", "id % 3 AS three").repartition(2, "three"))
        before = sorted(kept.collect())
        (rows_kept,) = row_cache._kept  # noqa: SLF001
        for part in range(2):  # as where the executor that had them is gone
            block = jvm.org.apache.spark.storage.RDDBlockId(rows_kept.id(), part)
            jvm.org.apache.spark.SparkEnv.get().blockManager().removeBlock(block, True)
        assert sorted(kept.collect()) == before


def test_an_application_of_others_whose_logs_in_s3_are_not_fenced_delivers_no_tables(spark: Any) -> None:
    """Delta's own log store looks and then puts; that of the tests' Spark, which has no lake in S3."""
    check_log_store(spark, "/local/lake/tables")
    for scheme in ("s3", "s3a"):
        named = rf"--conf spark\.delta\.logStore\.{scheme}\.impl=zync\.ConditionalLogStore"
        with pytest.raises(UsageError, match=named):
            check_log_store(spark, f"{scheme}://bucket/lake/tables")


def test_spark_starts_where_folders_have_spaces_in_their_names(tmp_path: Path) -> None:
    """zync, its jars, and the Python environment that has the archive of classes, in folders of such names."""
    place = tmp_path / "my 100% projects"
    place.mkdir()
    for name in ("zync", "sql"):
        shutil.copytree(Path(__file__).parents[2] / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "environment").symlink_to(sys.prefix)
    (place / "zync-cache").symlink_to(java.cache_folder())
    script = (
        f"import sys; sys.prefix = {str(place / 'environment')!r}\n"
        "from zync.spark.session import session\n"
        "spark = session('local[1]')\n"
        "spark.range(2).write.format('delta').save('a table')\n"
        "print(spark.read.format('delta').load('a table').count(), sys.modules['zync'].__file__)"
    )
    command, environment = [sys.executable, "-c", script], os.environ | {"ZYNC_CACHE": str(place / "zync-cache")}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == f"2 {place}/zync/__init__.py\n", done.stderr
