"""An archive of the classes that a sync loads, from which the next JVM starts seconds sooner.

The JVM's own class-data sharing: made once, at set-up, by a sync of the demo; lives with the Python environment whose
jars it is of. A JVM that it does not suit (another Java, other jars) leaves it aside.
"""

import sys
from pathlib import Path

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def folder() -> Path:
    """Where the archive is: with the Python environment."""
    return Path(sys.prefix) / "share" / "zync"


def named(archive: Path) -> str:
    """The file's name has its size: a JVM crashes over one that was cut off."""
    return f"classes-{archive.stat().st_size}.jsa"


def jvm_options() -> str:
    """The JVM options that make use of the archive; none where there is no whole one."""
    whole = [path for path in folder().glob("classes-*.jsa") if path.name == named(path)]
    return f"-XX:SharedArchiveFile={whole[0]} {QUIET}" if whole else ""
