"""Makes the modules beside a Python rule importable: in this process, and where Spark runs the rule's functions."""

import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

from zync.config.model import OutputRule
from zync.config.rule_modules import module_names
from zync.spark.session import delete_at_end

_ARCHIVE_VARIABLE = "ZYNC_RULE_MODULES"

_archives: dict[tuple[str, str], Path] = {}
"""The archives that were given to Spark, by the application's id and the digest of the modules."""
_imported: dict[tuple[str, str], dict[str, ModuleType]] = {}
"""The modules that rules have imported, by the same, as functions of Spark's in them belong to the application:
`sys.modules` has them only while such a rule is planned."""


@contextmanager
def importable(spark: SparkSession, rule: OutputRule) -> Iterator[None]:
    """Lets the rule and the functions that it gives to Spark import the modules beside it, as they were read.

    The modules are in a zip archive, which Spark sends to its executors as it does with `--py-files`. A Python worker
    keeps what it has imported, and Spark gives a task one that was started with the same environment. So a variable
    with the digest keeps workers apart that have other modules of the same names.

    Args:
        spark: The session.
        rule: The rule. Functions are pickled, with the names of their modules, when they are first called.
    """
    if not rule.modules:
        yield
        return
    context = spark.sparkContext
    archive = _archive(spark, rule)
    names = frozenset(module_names(rule.modules))
    includes, environment = context._python_includes, context.environment  # noqa: SLF001 - addPyFile never takes back
    context._python_includes = [*(includes or []), archive.name]  # noqa: SLF001
    context.environment = {**environment, _ARCHIVE_VARIABLE: archive.stem}
    others, cache_key = _take(names), (context.applicationId, rule.modules_digest)
    sys.modules.update(_imported.get(cache_key, {}))
    sys.path.insert(0, str(archive))
    try:
        yield
    finally:
        sys.path.remove(str(archive))
        _imported[cache_key] = _take(names)
        sys.modules.update(others)
        context._python_includes, context.environment = includes, environment  # noqa: SLF001


def _take(names: frozenset[str]) -> dict[str, ModuleType]:
    """Takes the modules of those names, and what is in these packages, out of `sys.modules` and returns them."""
    taken = [name for name in sys.modules if name.partition(".")[0] in names]
    return {name: sys.modules.pop(name) for name in taken}


def _archive(spark: SparkSession, rule: OutputRule) -> Path:
    """Returns the zip archive of the rule's modules, which Spark has for as long as the application lives."""
    context = spark.sparkContext
    key = (context.applicationId, rule.modules_digest)
    if key not in _archives:
        folder = Path(tempfile.mkdtemp(prefix="zync-rules-"))  # its random name, too: Spark takes a file's name once
        archive = folder / f"{folder.name}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            for path, content in rule.modules.items():
                file.writestr(zipfile.ZipInfo(path), content)
        context.addFile(str(archive))
        delete_at_end(spark, str(folder))
        _archives[key] = archive
    return _archives[key]
