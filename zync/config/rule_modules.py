"""Finds and reads the modules beside a Python rule that it imports."""

import ast
import importlib.util
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path


def read_modules(text: str, folder: Path) -> dict[str, bytes]:
    """Returns the modules and packages in a rule's folder that it imports, directly or through each other.

    It goes by the `import` statements, those in functions included. A package is returned whole, with its data files.

    Args:
        text: The rule's Python text. One with a syntax error imports nothing; it fails when it runs.
        folder: The folder of the rule's file.

    Returns:
        The files' contents by their path in the folder, like `tax.py` and `rates/__init__.py`, in order of the path.

    Raises:
        OSError: A file cannot be read.
    """
    files: dict[str, bytes] = {}
    names = list(_imported_names(text))
    while names:
        name = names.pop()
        package = folder / name
        if (package / "__init__.py").is_file():  # a package goes before a module of its name, as in Python
            paths = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        else:
            paths = [path for path in (folder / f"{name}.py",) if path.is_file()]
        for path in paths:
            key = path.relative_to(folder).as_posix()
            if key not in files:
                files[key] = path.read_bytes()
                names += _imported_names(files[key]) if path.suffix == ".py" else ()
    return dict(sorted(files.items()))


def module_names(files: dict[str, bytes]) -> list[str]:
    """Returns the names of the modules and packages, as they are imported, that `read_modules` has read."""
    return sorted({path.partition("/")[0].removesuffix(".py") for path in files})


def installed_twin(name: str, files: dict[str, bytes]) -> str | None:
    """Returns where Python has another module of the name of one beside a rule; None if it has none.

    A copy of the same content is none: an application may have been submitted with `--py-files tax.py`.
    """
    if name in sys.stdlib_module_names:
        return "Python's standard library"
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:  # None as origin: a folder without __init__.py
        return None
    content = files[f"{name}.py"] if f"{name}.py" in files else files[f"{name}/__init__.py"]
    try:
        is_copy = spec.loader.get_data(spec.origin) == content  # type: ignore[union-attr]
    except (AttributeError, OSError):
        is_copy = False
    return None if is_copy else spec.origin


def _imported_names(text: str | bytes) -> Iterator[str]:
    """Yields the top-level names that a Python text imports; none if it is no valid Python."""
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns when the text is run
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]
