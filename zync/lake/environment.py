"""Reads variables of the environment that the clouds' own tools read, too."""

import os


def first_variable(*names: str) -> str:
    """Returns the value of the first of these variables that is set and not empty; an empty text if none is."""
    return next((value for name in names if (value := os.environ.get(name))), "")
