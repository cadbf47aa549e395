"""What `import zync` offers."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import zync


@pytest.mark.parametrize("name", zync.__all__)
def test_every_public_name_can_be_loaded(name: str) -> None:
    assert getattr(zync, name) is not None


def test_no_public_name_is_that_of_a_package_which_would_take_its_place() -> None:
    assert set(zync.__all__).isdisjoint(module.name for module in pkgutil.iter_modules(zync.__path__))


def test_what_type_checkers_see_is_what_is_there() -> None:
    tree = ast.parse(Path(str(zync.__file__)).read_text())
    (only_for_types,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        name.asname or name.name
        for node in ast.walk(only_for_types)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert {*seen, "__version__"} == set(zync.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'zync' has no attribute 'syncc'"):
        _ = zync.syncc


def test_importing_zync_loads_neither_spark_nor_kafka() -> None:
    code = (
        "import sys, zync; print([name for name in ('pyspark', 'deltalake', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
