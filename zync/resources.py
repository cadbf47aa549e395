"""Finds the files of the package: SQL statements and the demo."""

from pathlib import Path


def data_folder(name: str) -> Path:
    """Returns the folder `sql` or `demo`: inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent
    installed = package / "_data" / name
    return installed if installed.is_dir() else package.parent / name
