"""The stages of a sync fit together: each takes what the stage before it returns, and none of that may be missing."""

import types
from dataclasses import fields
from itertools import pairwise
from typing import Any, get_args, get_origin, get_type_hints

from zync.resources import data_folder
from zync.sync.context import Sync
from zync.sync.syncer import STAGES


def taken_and_returned(stage: Any) -> tuple[type, type]:
    hints = get_type_hints(stage)
    returned = hints.pop("return")
    (taken,) = hints.values()
    return taken, returned


def test_each_stage_takes_what_the_one_before_returns() -> None:
    assert taken_and_returned(STAGES[0])[0] is Sync
    for stage, next_stage in pairwise(STAGES):
        assert taken_and_returned(stage)[1] is taken_and_returned(next_stage)[0], next_stage.__name__


def test_nothing_that_is_handed_on_may_be_missing() -> None:
    for handed_on in (Sync, *(taken_and_returned(stage)[1] for stage in STAGES)):
        hints = get_type_hints(handed_on)
        for field in fields(handed_on):
            is_union = get_origin(hints[field.name]) is types.UnionType
            assert not (is_union and type(None) in get_args(hints[field.name])), (handed_on, field.name)


def test_a_stage_is_one_file_and_has_its_name_on_its_statements() -> None:
    for stage in STAGES:
        assert stage.__module__ == f"zync.sync.{stage.__name__}"
    others = {"tables", "operate"}  # statements of deliveries and of commands
    assert {path.name for path in data_folder("sql").iterdir()} - others < {stage.__name__ for stage in STAGES}
