"""A table's columns beside those that syncs made its rows with: rules may be others by now, or not be read yet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from zync.debezium import toast
from zync.deliver.tables.target import OWN, PLACE, Target, check_columns
from zync.errors import UsageError

_MADE_SO = (
    "Where one has: `zync replay raw --into staging2` makes a staging by the rules of now; take the folder of the "
    "tables away, and `zync sync-to tables staging2`"
)


def as_made(target: Target, syncs: Mapping[int, Mapping[str, Any]]) -> Target:
    """The table as rows of those syncs want it: with the columns that they have and the rules, as read here, have not.

    `syncs`: what each has on record of its columns (`zync.staging.outputs`). UsageError where a sync made a column of
    a type that the rules' does not hold: its values would be rounded, or cut, in silence.
    """
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
                    f"so again, or, if they were changed since this began, begin again. {_MADE_SO}"
                )
                raise UsageError(msg)
    if len(fields) == len(target.columns.fields):
        return target
    found = replace(target, columns=StructType(list(fields.values())))
    check_columns(found, f"output {target.topic}: an earlier rule")
    return found


def changes(target: Target, there: StructType) -> tuple[dict[str, DataType], list[StructField], list[str]]:
    """What has to become of a table that has the columns `there`, for the rules: (wider types, new columns, dropped).

    UsageError where a column is of another type otherwise, or a change is unwanted.
    """
    types = {one.name: one.dataType for one in there.fields}
    of_name = {one.lower(): one for one in types}
    rules = f"the rules of output {target.topic}"
    wider = {}
    for one in target.columns.fields:
        if (known := of_name.get(one.name.lower(), one.name)) != one.name:
            msg = f"{rules} select {one.name!r}, and the table at {target.location} has {known!r}: call it that"
            raise UsageError(msg)
        was = types.get(one.name, one.dataType)
        if was == one.dataType:
            continue
        widens = is_wider(one.dataType, was, is_key=one.name in target.key)
        if not widens or target.said.schema_changes == "fail":
            fails = "schema_changes is fail: " if widens else ""
            msg = (
                f"{rules} make {one.name!r} a {one.dataType.simpleString()}, and the table at {target.location} has it "
                f"as {was.simpleString()}: {fails}cast it in the rule, before a sync makes it so. {_MADE_SO}"
            )
            raise UsageError(msg)
        wider[one.name] = one.dataType
    more = [one for one in target.columns.fields if one.name not in types]
    if more and target.said.schema_changes == "fail":
        msg = (
            f"{rules} select {more[0].name!r}, which the table at {target.location} does not have, and schema_changes "
            "is fail"
        )
        raise UsageError(msg)
    own = {*PLACE, *OWN.get(target.apply, ()), toast.COLUMN}
    dropped = [one for one in types if one not in target.columns.names and one not in own]
    if dropped and target.said.schema_changes == "fail":
        msg = (
            f"{rules} do not select {dropped[0]!r} any more, which the table at {target.location} has, and "
            "schema_changes is fail"
        )
        raise UsageError(msg)
    return wider, more, dropped


_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_EXACT_IN_DOUBLE = ("byte", "short", "integer")


def is_wider(to: DataType, was: DataType, *, is_key: bool) -> bool:
    """Whether all values of type `was`, and how they are written, are the same in the type `to`, but for zeros.

    So not float to double: 0.1 becomes 0.10000000149. Structs may have more fields. A key's text has to be the same to
    the letter, for it is what deleted rows are remembered by: no decimal of more decimals.
    """

    def digits(kind: DataType) -> tuple[int, int] | None:
        """How many before and after the point."""
        if isinstance(kind, DecimalType):
            return kind.precision - kind.scale, kind.scale
        return (_DIGITS[kind.typeName()], 0) if kind.typeName() in _DIGITS else None

    def holds(to: DataType, was: DataType) -> bool:
        return to == was or is_wider(to, was, is_key=False)

    if isinstance(to, StructType) and isinstance(was, StructType):
        fields = {one.name: one.dataType for one in to.fields}
        return not is_key and all(one.name in fields and holds(fields[one.name], one.dataType) for one in was.fields)
    if isinstance(to, ArrayType) and isinstance(was, ArrayType):
        return holds(to.elementType, was.elementType)
    if isinstance(to, MapType) and isinstance(was, MapType):
        return to.keyType == was.keyType and holds(to.valueType, was.valueType)
    if to.typeName() == "double":
        return was.typeName() in _EXACT_IN_DOUBLE and not is_key
    more, less = digits(to), digits(was)
    if more is None or less is None or (isinstance(was, DecimalType) and not isinstance(to, DecimalType)):
        return False
    return more[0] >= less[0] and (more[1] == less[1] if is_key else more[1] >= less[1])
