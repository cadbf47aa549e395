"""The index template for Elasticsearch has the fields of the log lines, each with a type that takes its values."""

import json
import re
from dataclasses import fields
from datetime import datetime
from fnmatch import fnmatch
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import yaml

from tests.docs.pages import CHECKOUT, blocks
from zync.deliver.kafka.delivery import Delivered
from zync.deliver.tables.batch import Batch
from zync.staging.kinds import SET_ASIDE_KINDS
from zync.sync.outcome import Outcome
from zync.sync.progress import Progress
from zync.sync.syncer import STAGES

FOLDER = CHECKOUT / "deploy" / "elastic"
TEMPLATE = json.loads((FOLDER / "index-template.json").read_text())
PROPERTIES: dict[str, Any] = TEMPLATE["template"]["mappings"]["properties"]
FIELDS: dict[str, dict[str, Any]] = PROPERTIES["zync"]["properties"]
TYPES = {"date", "double", "flattened", "keyword", "long", "match_only_text"}
"""Those of Elasticsearch's field types that the template may have: all are in 8 and in 9."""
TAKEN_BY: dict[Any, set[str]] = {int: {"long"}, float: {"double"}, str: {"keyword"}, datetime: {"date"}}
PAGE = (CHECKOUT / "docs" / "reference" / "logs.md").read_text()


def test_the_template_has_the_fields_of_the_page_and_no_others() -> None:
    of_all = re.findall(r"(?m)^\| `(\w+)` \|", PAGE.split("\n## ")[0])
    of_events = re.findall(r"(?m)^\| `\w+` \| (?:info|warning|error)[^|]*\|([^|]*)\|", PAGE)
    described = {*of_all, *(field for cell in of_events for field in re.findall(r"`(\w+)`", cell))}
    assert len(described) > 40
    assert set(FIELDS) == described | {"stage_seconds"}


def test_each_type_is_one_of_elasticsearchs() -> None:
    def types(properties: dict[str, Any]) -> set[str]:
        return {
            one
            for field in properties.values()
            for one in (types(field["properties"]) if "properties" in field else {field["type"]})
        }

    assert types(PROPERTIES) == TYPES


@pytest.mark.parametrize("kind", [Outcome, Progress, Delivered, Batch])
def test_a_field_takes_the_values_of_each_result_that_is_logged(kind: type) -> None:
    """Elasticsearch refuses a line with an object where it has a number, and the other way round."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        name, (hint, *_) = field.name, get_args(hints[field.name]) or (hints[field.name],)
        if get_origin(hints[field.name]) is dict:
            name = "stage_seconds" if name == "seconds" else name  # the pipeline renames it
            assert FIELDS[name].get("type") == "flattened" or "properties" in FIELDS[name], field
        else:
            assert FIELDS[name]["type"] in TAKEN_BY[hint], field


def test_kinds_and_stages_are_all_there() -> None:
    assert set(FIELDS["set_aside"]["properties"]) == set(SET_ASIDE_KINDS)
    assert set(FIELDS["stage_seconds"]["properties"]) == {stage.__name__ for stage in STAGES}


def test_fluent_bit_writes_where_the_template_and_its_pipeline_are() -> None:
    config = yaml.safe_load((FOLDER / "fluent-bit.yaml").read_text())
    (output,), (filter_,) = config["pipeline"]["outputs"], config["pipeline"]["filters"]
    assert any(fnmatch(output["index"], pattern) for pattern in TEMPLATE["index_patterns"])
    assert filter_["merge_log_key"] == "zync"
    pipeline = TEMPLATE["template"]["settings"]["index"]["default_pipeline"]
    page = (CHECKOUT / "docs" / "how-to" / "kubernetes.md").read_text()
    assert f"_ingest/pipeline/{pipeline}" in page
    assert "_index_template/logs-zync" in page


def test_what_the_page_shows_of_fluent_bits_config_is_in_its_file() -> None:
    config = yaml.safe_load((FOLDER / "fluent-bit.yaml").read_text())["pipeline"]
    (block,) = (one for one in blocks("yaml") if one.page == "docs/how-to/kubernetes.md" and not one.title)
    for kind, plugins in yaml.safe_load(block.text)["pipeline"].items():
        for shown, whole in zip(plugins, config[kind], strict=True):
            assert shown.items() <= whole.items()


def test_the_pipeline_only_speaks_of_fields_that_are_there() -> None:
    processors = json.loads((FOLDER / "pipeline.json").read_text())["processors"]
    named = [
        one[key]
        for step in processors
        for one in step.values()
        for key in ("field", "target_field", "copy_from")
        if key in one
    ]
    for name in named:
        parts = iter(name.split("."))
        found = PROPERTIES[next(parts)]
        for part in parts:
            found = found["properties"][part]
