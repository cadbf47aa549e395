"""The alerts: Prometheus reads them, they fire when they should, and a page says what to do."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import helm
from tests.prometheus import program

FOLDER = helm.CHECKOUT / "deploy" / "prometheus"
GROUPS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "zync.rules.yaml").read_text())["groups"]
RULES = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
PAGE = (helm.CHECKOUT / "docs" / "how-to" / "alerts.md").read_text()
by_alert = pytest.mark.parametrize("alert", RULES)


def promtool(*words: str | Path) -> str:
    done = subprocess.run([program("promtool"), *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_reads_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "zync.rules.yaml")


def test_each_alert_fires_when_it_should_and_not_when_it_should_not() -> None:
    assert "SUCCESS" in promtool("test", "rules", "zync.rules.test.yaml")


@by_alert
def test_each_alert_has_a_history_in_which_it_fires(alert: str) -> None:
    cases = yaml.safe_load((FOLDER / "zync.rules.test.yaml").read_text())["tests"]
    tests = [test for one in cases for test in one.get("alert_rule_test", ()) if test["alertname"] == alert]
    assert {bool(test["exp_alerts"]) for test in tests} == {True, False}


@by_alert
def test_each_alert_has_a_severity_and_a_section_that_says_what_to_do(alert: str) -> None:
    rule = RULES[alert]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"].endswith(f"/how-to/alerts/#{alert.lower()}")
    assert f"\n## {alert}\n" in PAGE


def test_the_page_has_no_alert_that_is_not_there() -> None:
    assert set(re.findall(r"(?m)^## (Zync\w+)$", PAGE)) == set(RULES)


@by_alert
def test_each_alert_asks_for_metrics_that_are_exposed(alert: str) -> None:
    page = (helm.CHECKOUT / "docs" / "reference" / "metrics.md").read_text()
    names = set(re.findall(r"zync_\w+", RULES[alert]["expr"]))
    assert names
    assert names <= set(re.findall(r"(?m)^\| `(zync_\w+)`", page))


def rules_of_the_chart(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The alerts of the PrometheusRule, which promtool has read."""
    documents = helm.manifests(helm.CHART / "ci" / f"{name}.yaml")
    (spec,) = (one["spec"] for one in documents if one["kind"] == "PrometheusRule")
    (folder / "rules.yaml").write_text(yaml.safe_dump(spec))
    promtool("check", "rules", folder / "rules.yaml")
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}


@pytest.mark.usefixtures("_helm")
def test_the_chart_has_the_same_alerts(tmp_path: Path) -> None:
    assert rules_of_the_chart("azure", tmp_path) == RULES


@pytest.mark.usefixtures("_helm")
def test_the_chart_changes_the_alerts_that_values_name(tmp_path: Path) -> None:
    rules = rules_of_the_chart("watched", tmp_path)
    assert set(RULES) - set(rules) == {"ZyncOldestInFlight"}
    assert rules["ZyncLag"]["expr"].endswith("> 60")
    assert rules["ZyncLag"]["labels"] == {"severity": "critical"}
    assert rules["ZyncLag"]["for"] == RULES["ZyncLag"]["for"]
    assert rules["ZyncDown"]["annotations"]["runbook_url"] == "https://wiki.example/zync#zyncdown"


@pytest.mark.usefixtures("_helm")
def test_an_alert_that_is_not_there_is_refused() -> None:
    done = helm.template(helm.CHART / "ci" / "azure.yaml", "--set", "prometheusRule.without={ZyncLagg}")
    assert "there is no alert ZyncLagg" in done.stderr
