"""An archive of the classes that a sync loads, from which the next JVM starts seconds sooner.

The JVM's own class-data sharing: made once, at set-up, by a sync of the demo; lives with the Python environment whose
jars it is of. A JVM that it does not suit (another Java, other jars) leaves it aside.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

_DUMP_SECONDS = 120
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def _folder() -> Path:
    return Path(sys.prefix) / "share" / "zync"


def _named(archive: Path) -> str:
    """The file's name has its size: a JVM crashes over one that was cut off."""
    return f"classes-{archive.stat().st_size}.jsa"


def jvm_options() -> str:
    """The JVM options that make use of the archive; none where there is no whole one."""
    whole = [path for path in _folder().glob("classes-*.jsa") if path.name == _named(path)]
    return f"-XX:SharedArchiveFile={whole[0]} {_QUIET}" if whole else ""


def make_archive() -> None:
    """Makes the archive, or makes it anew: a sync of the demo's records, and all classes that it took."""
    from pyspark import SparkContext  # noqa: PLC0415

    from zync.etl.explain import explain  # noqa: PLC0415
    from zync.ingest.load import load  # noqa: PLC0415
    from zync.places import data_folder  # noqa: PLC0415
    from zync.spark import session  # noqa: PLC0415
    from zync.sync import Syncer  # noqa: PLC0415
    from zync.yaml import load as load_config  # noqa: PLC0415

    _folder().mkdir(parents=True, exist_ok=True)
    for old in _folder().glob("*.jsa"):
        old.unlink()
    config = load_config(data_folder("demo") / "zync.yaml")
    with tempfile.TemporaryDirectory(dir=_folder()) as scratch:
        made, lake = Path(scratch) / "classes.jsa", Path(scratch)
        options = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={made} {_QUIET} -Xlog:disable"}
        spark = session("local[2]", options, brief=True)
        explain(spark, config)
        syncer = Syncer(config, str(lake / "raw"), str(lake / "staging"), spark)
        for part in sorted(data_folder("demo").glob("consume-*.jsonl")):
            load(syncer.raw, [str(part)])
            syncer.sync()
        gateway: Any = SparkContext._gateway  # noqa: SLF001 - the JVM has to end here, for that is when it writes
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        if gateway.proc.wait(_DUMP_SECONDS) == 0 and made.exists():
            made.rename(_folder() / _named(made))


if __name__ == "__main__":
    make_archive()
