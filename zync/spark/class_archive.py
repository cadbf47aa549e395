"""The class-data sharing (CDS) archive of the classes that a sync loads, which lets a JVM start seconds sooner.

`zync.demo.class_archive` creates it once, at set-up, by a sync of the demo, in the Python environment whose jars it
describes. A JVM that does not match the archive (another Java, other jars) ignores it.
"""

import sys
from pathlib import Path

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def folder() -> Path:
    """Returns the archive's folder, which is in the Python environment."""
    return Path(sys.prefix) / "share" / "zync"


def named(archive: Path) -> str:
    """Returns the name of an archive, which contains its size: a JVM crashes on a truncated archive."""
    return f"classes-{archive.stat().st_size}.jsa"


def jvm_options() -> str:
    """Returns the JVM options that use the archive; an empty text if no complete archive exists."""
    complete = [path for path in folder().glob("classes-*.jsa") if path.name == named(path)]
    return f"{quoted(f'-XX:SharedArchiveFile={complete[0]}')} {QUIET}" if complete else ""


def quoted(option: str) -> str:
    """Returns a JVM option as Spark takes it among others, which it divides at spaces."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'
