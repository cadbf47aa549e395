"""Schema evolution of a delivered table: compares its columns with those of the rules and those of earlier syncs.

Staging may have rows of earlier rules, or of rules that this process has not read yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.types import DataType, StructField, StructType

from zync.debezium import toast
from zync.deliver.tables.target import OWN, TableTarget, check_columns
from zync.errors import UsageError
from zync.lake.delivered import PLACE
from zync.rules.type_changes import is_wider

_REPLAY_ADVICE = (
    "Where one has: `zync replay raw --into staging2` makes a staging by the rules of now; take the folder of the "
    "tables away, and `zync sync-to tables staging2`"
)

_TO_STRING = ", or to string, which holds what there is as text (but not in a key)"


def as_made(target: TableTarget, syncs: Mapping[int, Mapping[str, Any]]) -> TableTarget:
    """Returns `target` with the columns that rows of `syncs` have and the current rules no longer select.

    Args:
        target: The table, with the columns of the current rules.
        syncs: For each sync the columns of its outputs (`zync.staging.outputs.recorded`).

    Raises:
        UsageError: a sync made a column of a type that the current type cannot hold: values would be rounded or
            truncated silently.
    """
    fields = {field.name.lower(): field for field in target.columns.fields}
    previous: dict[str, Any] = {}
    for sync, topics in sorted(syncs.items()):
        columns = topics.get(target.topic, previous)
        if columns == previous:  # most syncs have the columns of the sync before
            continue
        previous = columns
        for sync_field in StructType.fromJson(columns["value"]).fields:
            field = fields.setdefault(sync_field.name.lower(), sync_field)
            fits = field.dataType == sync_field.dataType or is_wider(
                field.dataType, sync_field.dataType, is_key=sync_field.name in target.key
            )
            if field.name != sync_field.name or not fits:
                msg = (
                    f"output {target.topic}: sync {sync} made {sync_field.name!r} as "
                    f"{sync_field.dataType.simpleString()}, and by "
                    f"the rules, as read here, it is {field.name!r}, {field.dataType.simpleString()}: cast it "
                    f"back{_TO_STRING}, or, if the rules were changed since this began, begin again. {_REPLAY_ADVICE}"
                )
                raise UsageError(msg)
    if len(fields) == len(target.columns.fields):
        return target
    extended = replace(target, columns=StructType(list(fields.values())))
    check_columns(extended, f"output {target.topic}: an earlier rule")
    return extended


def changes(target: TableTarget, table_schema: StructType) -> tuple[dict[str, DataType], list[StructField], list[str]]:
    """Compares the columns of an existing table with those that the rules select.

    Returns:
        The columns that need a wider type, with that type; the new columns; the names of the columns that the rules
        no longer select.

    Raises:
        UsageError: a column changed to a type that is not wider, or in its case only; or the table has
            `schema_changes: fail` and its columns differ.
    """
    types = {field.name: field.dataType for field in table_schema.fields}
    names_by_lower = {name.lower(): name for name in types}
    rules = f"the rules of output {target.topic}"
    wider = {}
    for field in target.columns.fields:
        if (table_name := names_by_lower.get(field.name.lower(), field.name)) != field.name:
            msg = f"{rules} select {field.name!r}, and the table at {target.location} has {table_name!r}: call it that"
            raise UsageError(msg)
        table_type = types.get(field.name, field.dataType)
        if table_type == field.dataType:
            continue
        widens = is_wider(field.dataType, table_type, is_key=field.name in target.key)
        if not widens or target.settings.schema_changes == "fail":
            reason = "schema_changes is fail: " if widens else ""
            msg = (
                f"{rules} make {field.name!r} a {field.dataType.simpleString()}, and the table at {target.location} "
                f"has it as {table_type.simpleString()}: {reason}cast it in the rule, before a sync makes it "
                f"so{_TO_STRING}. {_REPLAY_ADVICE}"
            )
            raise UsageError(msg)
        wider[field.name] = field.dataType
    new_fields = [field for field in target.columns.fields if field.name not in types]
    if new_fields and target.settings.schema_changes == "fail":
        msg = (
            f"{rules} select {new_fields[0].name!r}, which the table at {target.location} does not have, and "
            "schema_changes is fail"
        )
        raise UsageError(msg)
    own_columns = {*PLACE, *OWN.get(target.apply, ()), toast.COLUMN}
    dropped = [name for name in types if name not in target.columns.names and name not in own_columns]
    if dropped and target.settings.schema_changes == "fail":
        msg = (
            f"{rules} do not select {dropped[0]!r} any more, which the table at {target.location} has, and "
            "schema_changes is fail"
        )
        raise UsageError(msg)
    return wider, new_fields, dropped
