"""deploy/compose.yaml, as far as it can be looked at without its images."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import CHECKOUT
from zync.project.load import load

DEPLOY = CHECKOUT / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


def test_compose_takes_it() -> None:
    compose = ["docker", "compose"]
    if not shutil.which("docker") or subprocess.run([*compose, "version"], capture_output=True, check=False).returncode:
        if not shutil.which("docker-compose"):
            pytest.skip("neither `docker compose` nor docker-compose is here")
        compose = ["docker-compose"]
    done = subprocess.run(
        [*compose, "--file", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_each_image_has_a_version_and_each_file_is_there() -> None:
    for name, service in SERVICES.items():
        assert "build" in service or re.search(r":v?\d+\.\d+", service["image"]), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source == "lake" or (DEPLOY / source).exists(), source


def test_who_waits_for_a_healthy_service_waits_for_one_that_says_so() -> None:
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            assert wait["condition"] != "service_healthy" or "healthcheck" in SERVICES[other], (name, other)


def test_its_config_is_the_banks_and_its_topics_are_created(tmp_path: Path) -> None:
    bank, composed = (CHECKOUT / "demo/bank/zync.yaml").read_text(), (DEPLOY / "compose/zync.yaml").read_text()
    assert composed == bank.replace("./lake", "/lake").replace("localhost:9092", "kafka:9092")
    shutil.copytree(CHECKOUT / "demo/bank/etl", tmp_path / "etl")
    (tmp_path / "zync.yaml").write_text(composed)
    config = load(tmp_path / "zync.yaml")
    (script,) = SERVICES["topics"]["command"]
    tables = re.search(r"for table in ([\w ]+);", script)
    assert tables
    created = {f"bank.public.pgbench_{table}" for table in tables[1].split()}
    assert created | {"bank.transaction"} == {topic for topic in config.topics if not topic.startswith("^")}
    assert "--topic bank.transaction --partitions 1" in script
    included = json.loads((DEPLOY / "compose/connector.json").read_text())["table.include.list"]
    assert all(re.fullmatch(included, topic.removeprefix("bank.")) for topic in created)


def test_prometheus_asks_where_zync_answers() -> None:
    (job,) = yaml.safe_load((DEPLOY / "compose/prometheus.yml").read_text())["scrape_configs"]
    ((target,),) = (static["targets"] for static in job["static_configs"])
    host, port = target.split(":")
    assert f"0.0.0.0:{port}" in SERVICES[host]["command"]
