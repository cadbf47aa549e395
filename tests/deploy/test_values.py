"""What is in values.yaml is in its schema, and what is not is refused."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy import helm

SCHEMA = json.loads((helm.CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((helm.CHART / "values.yaml").read_text())

WRONG = {
    "sync.standy=true": "standy",
    "syncFrom.replicas=-1": "replicas",
    "syncFrom.standby=true": "standby",
    "sync.args[0]=--master,sync.args[1]=4": "args",
    "image.pullPolicy=Sometimes": "pullPolicy",
    "image.digest=latest": "digest",
    "metrics.port=80": "port",
    "logFormat=xml": "logFormat",
    "pod.tmpSize=20 GB": "tmpSize",
    "maintenance.tables.other.args[0]=--vacuum": "schedule",
    "executors.memory=4 GB": "memory",
    "executors.conf.master=yarn": "master",
    "podMonitor.interval=often": "interval",
    "prometheusRule.alerts.ZyncLag.severity=page": "severity",
    "config.files./etc/zync\\.yaml=x": "'/etc/zync.yaml'",
}


def parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all within it."""
    yield schema
    for key in ("properties", "$defs"):
        for one in schema.get(key, {}).values():
            yield from parts(one)


def merged(defaults: Any, values: Any) -> Any:
    """The values over the defaults, as Helm has them."""
    if not isinstance(defaults, dict) or not isinstance(values, dict):
        return values
    return {**defaults, **{key: merged(defaults.get(key), value) for key, value in values.items()}}


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def test_the_defaults_and_each_set_of_values_fit_the_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for values in ({}, *(yaml.safe_load(path.read_text()) for path in helm.CASES)):
        Draft202012Validator(SCHEMA).validate(merged(VALUES, values))


def test_the_schema_is_closed() -> None:
    for schema in parts(SCHEMA):
        if "properties" in schema:
            assert schema["additionalProperties"] is False, schema


def test_each_key_of_the_schema_has_a_default() -> None:
    def keys(schema: dict[str, Any], values: dict[str, Any], path: str) -> Iterator[str]:
        for key, inner in resolve(schema).get("properties", {}).items():
            if key not in values:
                yield f"{path}{key}"
            elif isinstance(values[key], dict) and values[key]:
                yield from keys(inner, values[key], f"{path}{key}.")

    optional = ("global", "resources.claims", "initialDelaySeconds")  # Helm's own, and Kubernetes'
    assert [one for one in keys(SCHEMA, VALUES, "") if not one.endswith(optional)] == []


@pytest.mark.usefixtures("_helm")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_is_refused_by_its_name(wrong: str) -> None:
    done = helm.template(helm.CHART / "ci" / "minimal.yaml", "--set", wrong)
    assert done.returncode != 0
    assert "schema" in done.stderr
    assert WRONG[wrong] in done.stderr


@pytest.mark.usefixtures("_helm")
def test_a_chart_without_a_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("logFormat: text\n")
    assert "config.files has no zync.yaml" in helm.template(tmp_path / "values.yaml").stderr


def test_the_chart_has_the_version_of_the_project() -> None:
    project = tomllib.loads((helm.CHECKOUT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]
