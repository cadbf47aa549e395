"""A table's columns beside those that syncs made its rows with: rules may be others by now, or not be read yet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zync.deliver.target import Target, check_columns
from zync.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def as_made(target: Target, syncs: Mapping[int, Mapping[str, Any]]) -> Target:
    """The table as rows of those syncs want it: with the columns that they have and the rules, as read here, have not.

    `syncs`: what each has on record of its columns (zync.etl.columns.recorded). UsageError where a sync made a column
    of a type that the rules' does not hold: its values would be rounded, or cut, in silence.
    """
    from pyspark.sql.types import StructType  # noqa: PLC0415

    fields = {one.name.lower(): one for one in target.columns.fields}
    seen: dict[str, Any] = {}
    for sync, topics in sorted(syncs.items()):
        made = topics.get(target.topic, seen)
        if made == seen:  # as most are like the one before
            continue
        seen = made
        for one in StructType.fromJson(made["value"]).fields:
            there = fields.setdefault(one.name.lower(), one)
            same = there.dataType == one.dataType or is_wider(
                there.dataType, one.dataType, is_key=one.name in target.key
            )
            if there.name != one.name or not same:
                msg = (
                    f"output {target.topic}: sync {sync} made {one.name!r} as {one.dataType.simpleString()}, and by "
                    f"the rules, as read here, it is {there.name!r}, {there.dataType.simpleString()}: let them make it "
                    "so again; or `zync replay` makes a staging by the rules of now, for a lake of its own; or, if "
                    "they were changed since this began, begin again"
                )
                raise UsageError(msg)
    if len(fields) == len(target.columns.fields):
        return target
    found = replace(target, columns=StructType(list(fields.values())))
    check_columns(found, f"output {target.topic}: an earlier rule")
    return found


_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN_DOUBLE = ("byte", "short", "integer")


def is_wider(to: "DataType", was: "DataType", *, is_key: bool) -> bool:
    """Whether all values of type `was`, and how they are written, are the same in the type `to`, but for zeros.

    So not float to double: 0.1 becomes 0.10000000149. A key's text has to be the same to the letter, for it is what
    deleted rows are remembered by: no decimal of more decimals.
    """
    from pyspark.sql.types import DecimalType  # noqa: PLC0415

    def digits(kind: "DataType") -> tuple[int, int] | None:
        """How many before and after the point."""
        if isinstance(kind, DecimalType):
            return kind.precision - kind.scale, kind.scale
        return (_DIGITS[kind.typeName()], 0) if kind.typeName() in _DIGITS else None

    if to.typeName() == "double":
        return was.typeName() in _EXACT_IN_DOUBLE and not is_key
    more, less = digits(to), digits(was)
    if more is None or less is None or (isinstance(was, DecimalType) and not isinstance(to, DecimalType)):
        return False
    return more[0] >= less[0] and (more[1] == less[1] if is_key else more[1] >= less[1])
