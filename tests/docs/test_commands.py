"""Each command, option, make target and module that a page names exists, and each in a block is run by some test."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import (
    BLOCKS,
    CHECKOUT,
    PAGES,
    blocks,
    commands_below,
    find_command,
    forms,
    has,
    options_of,
    page,
    parse,
    planned,
    root,
)
from tests.docs.test_own_kafka import OWN_KAFKA

NOT_RUN = {
    "git clone … && cd zync": "nobody knows from where",
    "make demo": "sets up the checkout; test_tutorial.py runs what it runs then",
    "make demo DEMO=orders": "as above",
    "make demo DEMO=postgres": "as above; tests/cdc has a real PostgreSQL and Debezium",
    "cd zync-demo": "test_tutorial.py checks that the demo leaves this folder",
    "pip install .": "test_wheel.py installs it, somewhere else",
    "pip install 'zync[traces]'": "the environment of the tests has it",
    "pip install 'zync[lineage]'": "as above",
    "export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318": "tests/observe sets it for each process",
    "export OPENLINEAGE_URL=http://marquez:5000": "as above",
    "python -m zync.demo.class_archive": "make setup runs it",
    "make image": "tests/deploy/test_image.py builds it, by buildah",
    "cd deploy": "of the next",
    "pip install --target packages protobuf": "tests/spark/test_executors.py takes the package from this environment",
    "tar -czf packages.tar.gz -C packages .": "tests/spark/test_executors.py makes the same archive",
    "jars=$(docker run --rm --entrypoint python3 registry.example/shop:1 -m zync.java jars s3 |"
    " sed 's#/opt#local:///opt#g')": "of the next",
    "docker compose up": "tests/deploy/test_image.py has the same services from packages",
}
"""Commands in blocks that are not run as they are, and why."""

ELSEWHERE = {
    "docker run": "tests/deploy/test_image.py, by runc",
    "docker compose exec zync": "tests/cli and tests/deliver",
    "zync sync-from kafka raw": "tests/kafka",
    "zync sync raw staging": "TABLE, below",
    "zync load raw": "TABLE, below",
    "zync cat": "TABLE, below",
    "zync query": "TABLE, below, and tests/deliver",
    "zync status": "TABLE, below",
    "zync maintain": "TABLE, below, and tests/spark/test_maintain.py",
    "zync run": "tests/kafka/test_run.py",
    "zync sync-to": "tests/deliver",
    "zync snapshot": "tests/deliver",
    "zync txn": "tests/cdc",
    "zync dlq": "tests/spark/test_dlq.py",
    "zync replay": "tests/spark/test_again.py",
    "zync diff": "tests/spark/test_again.py",
    "zync verify": "tests/spark/test_again.py",
    "zync broker": "tests/cli",
    "zync demo": "test_tutorial.py",
    "zync check --data raw": "tests/cli",
    "zync doctor": "tests/unit/test_doctor.py and tests/kafka/test_doctor.py",
    "spark-submit": "tests/spark/test_executors.py, in client mode on a standalone cluster",
    "helm": "tests/deploy, which has no cluster and only renders the chart",
    "kubectl": "as above",
    "curl --fail --request PUT": "tests/deploy/test_elastic.py, which has no Elasticsearch",
    "tofu": "tests/deploy/test_terraform.py, which has no cloud and applies to mocks",
    "curl -s localhost:9464/readyz": "tests/unit/test_metrics_server.py",
}
"""How commands begin that run in tests with other arguments than the pages have, and where."""

TABLE = [
    (".", "zync init", "wrote zync.yaml"),
    (".", "zync init new", "wrote new/zync.yaml"),
    ("demo", "zync load raw consume-1.jsonl", "loaded 3 records, seqno 1 to 3"),
    ("demo", "zync sync raw staging", "sync 1: 1 transaction of 3 records"),
    ("demo", "zync check", "the config and its rules can run"),
    ("demo", "zync explain", r"output order by order\.sql.*customerID int.*total decimal\(10,2\)"),
    ("demo", "zync cat raw", r'"seqno":1,.*"seqno":2,.*"seqno":3,'),
    ("demo", "zync cat staging", r'"kind":"pending".*"kind":"output"'),
    ("demo", 'zync query "SELECT kind, seqno FROM staging"', "output.*3"),
    ("demo", "zync status", "cursor 1, head 3.*in flight 1.*set aside none.*gaps +none"),
    ("demo", "zync maintain raw", "1 file in the table, none to compact; 0 that nobody needs deleted"),
    ("demo", "zync maintain staging", "compacted into 1; 0 that nobody needs deleted"),
]
"""Commands of the table of commands, where they are run, and what each prints."""

IN_BLOCKS = sorted({command for block in blocks("sh", "console") for command in block.commands})
SPANS = sorted({span for one in PAGES for span in one.spans})
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in page("docs/index.md").text.partition("## The commands")[2].splitlines()
    if line.startswith("| `zync ")
]


def elsewhere(command: str) -> bool:
    return any(command == begin or command.startswith(f"{begin} ") for begin in ELSEWHERE)


def test_blocks_have_languages_that_a_test_knows() -> None:
    known = {"console", "csv", "hcl", "json", "properties", "python", "sh", "sql", "text", "yaml"}
    assert {block.language for block in BLOCKS} <= known
    assert [one.name for one in PAGES if re.search(r"(?m)^(?: {4}|\t)\S", one.prose)] == ["docs/reference/python.md"]


@pytest.mark.parametrize("command", IN_BLOCKS)
def test_every_command_in_a_block_is_run_or_has_a_reason(command: str) -> None:
    assert command in {*OWN_KAFKA, *NOT_RUN, *(line for _, line, _ in TABLE)} or elsewhere(command)


def test_every_command_of_the_table_is_run_here_or_elsewhere() -> None:
    named = [one for first, _ in ROWS for span in re.findall(r"`([^`]+)`", first) for one in forms(span)]
    here = {command for _, command, _ in TABLE}
    assert here <= set(named)
    assert [one for one in named if one not in here and not elsewhere(one)] == []


@pytest.mark.parametrize("line", [one for one in IN_BLOCKS if one.startswith("zync ")])
def test_every_command_in_a_block_exists(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("zync ")])
def test_every_command_in_the_text_exists(span: str) -> None:
    for form in forms(span):
        command, words = find_command(form, partly=True)
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options_of(command), form


@pytest.mark.parametrize("span", [span for span in SPANS if span.startswith("--")])
def test_every_option_in_the_text_exists(span: str) -> None:
    every = set().union(*map(options_of, commands_below(root())))
    assert {word for word in span.split() if word.startswith("--")} <= every


def test_every_option_of_the_table_exists() -> None:
    seen = 0
    for first, second in ROWS:
        command = forms(re.findall(r"`([^`]+)`", first)[0])[0]
        options = options_of(find_command(command)[0])
        for span in re.findall(r"`(--[^`]+)`", second):
            name, *value = span.split()
            assert name in options, f"{command} has no {name}"
            if value:
                parse(command, name, *value)
            seen += 1
    assert seen > 10


@pytest.mark.parametrize(
    "line",
    ["zync synk raw staging", "zync sync raw staging --folow", "zync cat", "zync broker", "zync cat raw --limit x"],
)
def test_a_command_that_does_not_exist_would_be_noticed(line: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(line)):
        parse(line)


TARGETS = {span.split()[1] for span in [*SPANS, *IN_BLOCKS] if re.fullmatch(r"make [a-z-]+( \w+=\w+)*", span)}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_make_target_that_is_named_exists(target: str) -> None:
    assert planned(target)


MODULES = sorted({name for span in [*SPANS, *IN_BLOCKS] for name in re.findall(r"python -m ([\w.]+)", span)})


@pytest.mark.parametrize("module", MODULES)
def test_every_module_that_is_named_exists(module: str) -> None:
    assert find_spec(module)


BENCHES = sorted(set(re.findall(r"(?m)^\| `(\w+)` \|", page("docs/figures.md").text)) - {"bench"})


@pytest.mark.parametrize("name", BENCHES)
def test_every_figure_is_of_a_benchmark_that_exists(name: str) -> None:
    assert (CHECKOUT / "bench" / f"{name}.py").exists()


def test_the_commands_of_the_table_do_what_they_say(
    tmp_path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch, warm: Any
) -> None:
    for name in ("ZYNC_LAKE", "ZYNC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for folder, command, gist in TABLE:
        assert has(warm(*shlex.split(command)[1:], cwd=tmp_path / folder).stdout, gist), command
    assert demo == tmp_path / "demo"
