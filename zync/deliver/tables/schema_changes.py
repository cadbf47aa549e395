"""A table's columns beside those that syncs made its rows with: rules may be others by now, or not be read yet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from zync.debezium import toast
from zync.deliver.tables.target import OWN, PLACE, Target, check_columns
from zync.errors import UsageError
from zync.rules.type_changes import is_wider

_MADE_SO = (
    "Where one has: `zync replay raw --into staging2` makes a staging by the rules of now; take the folder of the "
    "tables away, and `zync sync-to tables staging2`"
)

_TO_STRING = ", or to string, which holds what there is as text (but not in a key)"


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
                    f"the rules, as read here, it is {there.name!r}, {there.dataType.simpleString()}: cast it "
                    f"back{_TO_STRING}, or, if the rules were changed since this began, begin again. {_MADE_SO}"
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
                f"as {was.simpleString()}: {fails}cast it in the rule, before a sync makes it so{_TO_STRING}. "
                f"{_MADE_SO}"
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
