"""Prints what the image is made of, in MB: docs/how-to/image.md says how."""

import os
from collections.abc import Iterator
from pathlib import Path

_ENVIRONMENT = Path("/opt/zync")
_MB = 1_000_000
_LARGE = 20 * _MB


def size(path: Path) -> int:
    """Returns the bytes of a file or of all files in a folder; 0 of a folder that only root may read."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(size(child) for child in path.iterdir()) if os.access(path, os.R_OK | os.X_OK) else 0


def parts() -> Iterator[tuple[str, int]]:
    """Yields each part with its bytes."""
    yield "Java runtime", size(Path("/usr/lib/jvm"))
    packages = next(_ENVIRONMENT.glob("lib/python3*/site-packages"))
    sizes = {path.name: size(path) for path in packages.iterdir()}
    spark = sizes.pop("pyspark")
    jars = size(packages / "pyspark" / "jars")
    yield "Spark's jars, in pyspark", jars
    yield "the rest of pyspark", spark - jars
    for name in sorted(filter(lambda name: sizes[name] > _LARGE, sizes), key=lambda name: -sizes[name]):
        yield f"{name}, of Python", sizes.pop(name)
    yield "other Python packages", sum(sizes.values())
    yield "class archive", size(_ENVIRONMENT / "share" / "zync")
    sizes = {folder.name.split("+")[0]: size(folder) for folder in (_ENVIRONMENT / "cache").iterdir()}
    for name in [name for name in sizes if sizes[name] > _LARGE]:
        yield f"jars: {name}", sizes.pop(name)
    yield "jars: all others", sum(sizes.values())


def main() -> None:
    """Prints the parts, the largest first, and the whole."""
    named = sorted(parts(), key=lambda part: -part[1])
    skipped = {"proc", "sys", "dev", "tmp", "run"}
    whole = sum(size(path) for path in Path("/").iterdir() if path.name not in skipped)
    rest = whole - sum(amount for _, amount in named)
    for name, amount in (*named, ("Debian, with its Python", rest), ("all", whole)):
        print(f"{amount / _MB:8,.0f}  {name}")


if __name__ == "__main__":
    main()
