"""Creates the class archive: checks and syncs the demos in a JVM that records the classes it loads."""

import tempfile
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from zync.operate.explain import explain
from zync.project.load import load as load_config
from zync.raw.jsonl import load
from zync.resources import data_folder
from zync.spark.class_archive import QUIET, folder, named, quoted
from zync.spark.session import session
from zync.sync.syncer import Syncer

_DUMP_SECONDS = 120


def make_archive() -> None:
    """Creates the class archive, or replaces it, from the classes that a check of both demos and a sync of one load."""
    folder().mkdir(parents=True, exist_ok=True)
    for outdated in folder().glob("*.jsa"):
        outdated.unlink()
    config = load_config(data_folder("demo") / "zync.yaml")
    with tempfile.TemporaryDirectory(dir=folder()) as scratch:
        archive, lake = Path(scratch) / "classes.jsa", Path(scratch)
        options = {
            "spark.driver.extraJavaOptions": f"{quoted(f'-XX:ArchiveClassesAtExit={archive}')} {QUIET} -Xlog:disable"
        }
        spark = session("local[2]", options, brief=True)
        explain(spark, load_config(data_folder("demo") / "bank" / "zync.yaml"))
        explain(spark, config)
        syncer = Syncer(config, str(lake / "raw"), str(lake / "staging"), spark)
        for part in sorted(data_folder("demo").glob("consume-*.jsonl")):
            load(syncer.raw, [str(part)])
            syncer.sync()
        gateway: Any = SparkContext._gateway  # noqa: SLF001 - the JVM writes the archive when it ends
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        if gateway.proc.wait(_DUMP_SECONDS) == 0 and archive.exists():
            archive.rename(folder() / named(archive))


if __name__ == "__main__":
    make_archive()
