"""Files that come with the package: the SQL statements and the demo."""

from pathlib import Path


def data_folder(name: str) -> Path:
    """The folder `sql` or `demo`: inside the wheel, or beside the package in a checkout."""
    here = Path(__file__).parent
    packed = here / "_data" / name
    return packed if packed.is_dir() else here.parent / name
