"""README.md is true: its commands run as written, its config loads, and what it says they print is what they print."""

import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.conftest import TopicMaker, produce, rows
from tests.kafka.conftest import wait_until
from zync.cli import app
from zync.config.model import Config, Topic, Transactions
from zync.ingest.consume import Ingest
from zync.kafka.dev_broker import DevKafka
from zync.project.load import load as read_config

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()
BIN = Path(sys.executable).parent

OWN_KAFKA = {
    "zync init": "wrote zync.yaml, etl/paid_orders.sql; next: zync check",
    "$EDITOR zync.yaml etl/paid_orders.sql": "",
    "zync check": "the config and its rules can run",
    "zync run": "committed 2 records.*sync 1: 1 transaction of 2 records; output rows: paid_orders 1; in flight 0",
    "zync status": r"head 2, .*cursor 2, head 2\b.*in flight 0.*set aside none.*gaps +none.*lag +\S+ 0, \S+ 0",
}
"""Commands of the block on one's own Kafka, and what each prints."""

NOT_RUN = {
    "git clone … && cd zync": "nobody knows from where",
    "make demo": "sets up the checkout; test_the_demo_shows_what_the_readme_says runs what it runs then",
    "pip install .": "test_wheel.py installs it, somewhere else",
}
"""Commands in blocks that are not run as they are, and why."""

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

TABLE_NOT_RUN = {
    "zync sync-from kafka raw": "tests/kafka runs it",
    "zync run": "it is of the block on one's own Kafka",
    **{
        f"zync {words}": "tests/deliver runs it"
        for words in ("sync-to kafka staging", "sync-to tables staging", "snapshot")
    },
    "zync demo": "it has a test of its own",
    "zync check --data raw": "tests/cli runs it",
    **{f"zync txn {word}": "tests/cdc runs it" for word in ("list", "show", "release", "discard")},
    **{f"zync dlq {word}": "tests/spark/test_dlq.py runs it" for word in ("list", "show", "redrive", "drop")},
    **{f"zync {words}": "tests/spark/test_again.py runs it" for words in ("verify", "diff staging staging2")},
    "zync replay raw --into staging2": "tests/spark/test_again.py runs it",
    **{f"zync broker {word}": "tests/cli starts and stops one" for word in ("start", "stop", "status", "run")},
}

PLACEHOLDERS = {"FOLDER": "new", "FILE…": "consume-1.jsonl", "SELECT …": "SELECT kind, seqno FROM staging"}


@dataclass(frozen=True)
class Block:
    """A block of code: fenced, or indented by four spaces."""

    language: str
    text: str

    @property
    def commands(self) -> dict[str, str]:
        """A shell block's commands, and the comment that each has."""
        lines = [re.split(r"\s+#\s+", line, maxsplit=1) for line in self.text.splitlines() if line.strip()]
        return {command.strip(): "".join(comment) for command, *comment in lines}


def blocks() -> Iterator[Block]:
    language, taken = "", list[str]()
    fenced = False
    for line in ["", *README.splitlines(), ""]:
        indented = line.startswith("    ") or (taken and not line)
        if line.startswith("```"):
            fenced = not fenced
            language = line[3:] if fenced else language
        elif fenced or (indented and not language):
            taken.append(line[0 if fenced else 4 :])
            continue
        if taken and not fenced:
            text = "\n".join(taken).strip("\n")
            yield Block(language or guess(text), text)
            language, taken = "", []


def guess(text: str) -> str:
    """What an unnamed block is; what is nothing else is shell, so that nothing goes unnoticed."""
    if "──" in text:
        return "picture"
    try:
        return "yaml" if isinstance(yaml.safe_load(text), dict) else "shell"
    except yaml.YAMLError:
        return "shell"


SHELL = [block for block in blocks() if block.language in ("shell", "sh", "bash", "console")]
YAML = [block for block in blocks() if block.language == "yaml"]
IN_BLOCKS = [command for block in SHELL for command in block.commands]
IN_TEXT = [span.replace("\\|", "|") for span in re.findall(r"(?<!`)`(zync [^`\n]+)`", README)]
ROWS = [
    [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in README.partition("## The commands")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| `zync ")
]


def forms(text: str) -> list[str]:
    """The commands that `zync cat raw|staging [--kind output]` stands for; placeholders get an example's value."""
    if option := re.search(r" \[([^]]+)]", text):
        return [one for with_ in ("", " " + option[1]) for one in forms(text.replace(option[0], with_))]
    if choice := re.search(r"[\w-]+(?:\|[\w-]+)+", text):
        return [one for word in choice[0].split("|") for one in forms(text.replace(choice[0], word))]
    for name, example in PLACEHOLDERS.items():
        text = text.replace(name, example)
    return [text]


def parse(line: str, *more: str, named: bool = False) -> Any:
    """The command that the line runs, its words parsed by the command line itself, but not run.

    One that is only `named` may do without its arguments.
    """
    program, *words = shlex.split(line)
    assert program == "zync"
    if words == ["--help"]:
        return None
    command: Any = typer.main.get_command(app)
    name = program
    while hasattr(command, "commands"):
        assert words, f"{line}: a subcommand is missing"
        name = words.pop(0)
        assert name in command.commands, f"{line}: there is no {name}"
        command = command.commands[name]
    if named and not words:
        return command
    try:
        command.make_context(name, [*words, *more])
    except Exception as error:
        msg = f"{line} {' '.join(more)}: {error}"
        raise AssertionError(msg) from error
    return command


def test_every_command_in_a_block_is_run_here_or_has_a_reason() -> None:
    assert {block.language for block in blocks()} == {"picture", "shell", "text", "yaml"}
    assert sorted(IN_BLOCKS) == sorted([*OWN_KAFKA, *NOT_RUN])


def test_every_command_of_the_table_is_run_here_or_has_a_reason() -> None:
    named = [one for first, _ in ROWS for span in re.findall(r"`([^`]+)`", first) for one in forms(span)]
    assert sorted(named) == sorted([*(command for _, command, _ in TABLE), *TABLE_NOT_RUN])


@pytest.mark.parametrize("line", sorted({*IN_TEXT, *(one for one in IN_BLOCKS if one.startswith("zync "))}))
def test_every_command_that_is_named_exists(line: str) -> None:
    for one in forms(line):
        parse(one, named=line in IN_TEXT)


def test_every_option_of_the_table_exists() -> None:
    seen = 0
    for first, second in ROWS:
        command = next(iter(forms(re.findall(r"`([^`]+)`", first)[0])))
        options = {name for parameter in parse(command).params for name in parameter.opts}
        for span in re.findall(r"`(--[^`]+)`", second):
            for one in forms(span):
                name, *value = one.split()
                assert name in options, f"{command} has no {name}"
                parse(command, *([name, *value] if value else []))
                seen += 1
    assert seen > 10


@pytest.mark.parametrize(
    "line",
    ["zync synk raw staging", "zync sync raw staging --folow", "zync cat", "zync broker", "zync cat raw --limit x"],
)
def test_a_command_that_does_not_exist_would_be_noticed(line: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(line)):
        parse(line)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)`", README)) | {"demo", "setup"}))
def test_every_make_target_that_is_named_exists(target: str) -> None:
    assert planned(target)


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ([\w.]+)", README))))
def test_every_module_that_is_named_exists(module: str) -> None:
    assert find_spec(module)


def planned(*target: str) -> list[str]:
    """What make would run."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *target]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=settings(**environment), capture_output=True, text=True, check=False
    )


def settings(**more: str) -> dict[str, str]:
    """The environment of somebody who has just installed zync."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("ZYNC_") or key == "ZYNC_CACHE"}
    return {**ours, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}


def has(said: str, gist: str) -> bool:
    return re.search(gist, said, re.DOTALL) is not None


@pytest.fixture
def in_background(tmp_path: Path) -> Iterator[Callable[[str], tuple["subprocess.Popen[bytes]", Path]]]:
    """Starts a command that is left running, and says where its output goes; what still runs in the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def go(command: str) -> tuple["subprocess.Popen[bytes]", Path]:
        log = tmp_path / f"{len(started)}.log"
        with log.open("w") as out:
            one = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=tmp_path, env=settings(), stdout=out, stderr=out
            )
        started.append(one)
        return one, log

    yield go
    for one in started:
        one.kill()
        one.wait()


def test_the_commands_for_ones_own_kafka_run_as_written(
    tmp_path: Path, broker: str, topic: TopicMaker, in_background: Any
) -> None:
    orders, payments = topic("orders"), topic("payments")
    produce(broker, [(orders, 0, {"txn": "t1", "n": 2, "orderID": 7, "item": "tea"})])
    produce(broker, [(payments, 0, {"txn": "t1", "n": 2, "amount": 2.5})])
    editor = tmp_path / "editor"  # what a user changes: the broker, and what the topics are called there
    editor.write_text(
        f"""#!/bin/sh
        sed -i -e 's/localhost:9092/{broker}/' -e 's/^  orders:/  {orders}:/' -e 's/# as: orders/as: orders/' "$1"
        sed -i -e 's/payments: {{id: "value:txn"}}/{payments}: {{id: "value:txn", as: payments}}/' "$1"
        test -f "$2"
        """
    )
    editor.chmod(0o755)

    (block,) = (one for one in SHELL if "zync init" in one.commands)
    running = {}
    for command, comment in block.commands.items():
        if command in NOT_RUN:
            continue
        if "leave it running" in comment:
            running[command] = in_background(command)
            continue
        for begun, (process, log) in running.items():
            wait_until(lambda log=log, begun=begun: has(log.read_text(), OWN_KAFKA[begun]), 120)  # type: ignore[misc]
            assert process.poll() is None
        done = shell(command, tmp_path, EDITOR=str(editor))
        assert done.returncode == 0, done.stderr
        assert has(done.stdout, OWN_KAFKA[command]), done.stdout
    assert running.keys() == {"zync run"}
    for process, log in running.values():
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()
    (output,) = (row for row in rows(tmp_path / "lake" / "staging") if row["kind"] == "output")
    assert (output["key"], output["value"]) == ('{"orderID":7}', '{"orderID":7,"item":"tea","amount":2.50}')


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What `make demo DEMO=orders` runs, run: where, and what it printed."""
    folder = tmp_path_factory.mktemp("demonstration")
    *_, command = planned("demo", "DEMO=orders")
    assert command == ".venv/bin/zync demo --what orders"
    done = shell(command.removeprefix(".venv/bin/"), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


_COUNT = re.compile(r"-?\d[\d,]*")


def test_the_demo_of_the_bank_shows_what_the_readme_says(tmp_path: Path) -> None:
    *_, command = planned("demo")
    assert command == ".venv/bin/zync demo --what bank"
    done = shell(f"{command.removeprefix('.venv/bin/')} --seconds 2", tmp_path, ZYNC_LAKE="nowhere")
    assert done.returncode == 0, done.stdout + done.stderr
    (quoted,) = (block.text for block in blocks() if block.language == "text" and "BROKEN" in block.text)
    for line in quoted.splitlines():
        gist = r"\s+".join(re.escape(_COUNT.sub("0", word)) for word in line.split())
        told = _COUNT.sub("0", done.stdout).replace("equal", "BROKEN")
        assert re.search(gist.replace("equal", "BROKEN"), told), (line, done.stdout)
    assert ", 0 times in zync's tables." in done.stdout
    said, came = re.findall(r"(?:the bank itself says|zync's four tables say) (-?\d[\d,]*)", done.stdout)
    assert said.strip(",") == came.strip(",")


def test_the_demo_lands_both_transactions(demonstration: tuple[Path, str]) -> None:
    where, said = demonstration
    for shown in re.findall(r"runs `(zync [^`]*)` and `(zync [^`]*)`", README)[0]:
        assert f"$ {shown}" in said
    assert re.search(r"^sync 2: 1 transaction of 1 record;.* cursor 4, head 4$", said, re.MULTILINE)
    (folder,) = re.findall(r"Its folder `([\w-]+)` stays", README)
    values = [row["value"] for row in rows(where / folder / "lake" / "staging") if row["kind"] == "output"]
    assert values == [
        '{"customerID":1,"menuID":200,"qty":2,"total":3.98}',
        '{"customerID":2,"menuID":100,"qty":1,"total":5.99}',
    ]
    assert DevKafka(where / folder / ".zync" / "broker").pid() is None


def test_the_demo_prints_what_the_readme_quotes(demonstration: tuple[Path, str]) -> None:
    quoted = re.findall(r"`(sync \d: [^`]*)`", README)
    assert quoted
    for quote in quoted:
        gist = "[^\n]*".join(re.escape(part.strip()) for part in quote.split("…"))
        assert re.search(gist, demonstration[1]), demonstration[1]


def test_the_commands_of_the_table_do_what_they_say(
    tmp_path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch, warm: Any
) -> None:
    for name in ("ZYNC_LAKE", "ZYNC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    for folder, command, gist in TABLE:
        assert has(warm(*shlex.split(command)[1:], cwd=tmp_path / folder).stdout, gist), command
    assert demo == tmp_path / "demo"


@pytest.mark.parametrize("block", YAML, ids=lambda block: block.text.split(":")[0])
def test_the_parts_of_a_config_are_right(tmp_path: Path, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zync.yaml").write_text(block.text)
    for name in ("customers.csv", "etl/order.sql"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    assert read_config(tmp_path / "zync.yaml") != Config(path=tmp_path / "zync.yaml")


def test_the_config_is_right(tmp_path: Path, demo: Path, monkeypatch: pytest.MonkeyPatch, warm: Any) -> None:
    (block,) = (one for one in YAML if one.text.startswith("lake"))
    (tmp_path / "zync.yaml").write_text(block.text)
    (tmp_path / "customers.csv").write_text("customerID,name\n1,Ann\n")
    shutil.copytree(demo / "etl", tmp_path / "etl")
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    config = read_config(Path("zync.yaml"))
    assert config.kafka["sasl.password"] == "secret"
    assert config.topics["menu"].as_ == "menu"
    said = warm("check", cwd=tmp_path).stdout
    assert "the config and its rules can run" in said
    assert "warning" not in said


def test_the_keys_of_topics_that_are_named_exist() -> None:
    named = re.findall(r"`(\w+): \"[^`]*\"`", README)
    assert {"schema", "record_id"} <= set(named)
    assert set(named) <= {one.metadata.get("key", one.name) for one in fields(Topic)}


def test_the_python_calls_run_as_written(demo: Path, broker: str, topic: TopicMaker, spark: Any) -> None:
    calls = dict(re.findall(r"`(zync(?:\.\w+)+)\(([^`]*)\)`", README))
    assert calls == {"zync.sync.sync_once": "config, raw, staging", "zync.ingest.consume.sync_from_kafka": "Ingest(…)"}

    order, menu = topic("order"), topic("menu")
    raw, staging = str(demo / "lake" / "raw"), str(demo / "lake" / "staging")
    config = replace(
        read_config(demo / "zync.yaml"),
        topics={order: Topic("value:txn", as_="order"), menu: Topic("value:txn", as_="menu")},
        transactions=Transactions(done="count(*) = 2"),
    )
    produce(
        broker, [(order, 0, {"txn": 1, "customerID": 1, "qty": 2}), (menu, 0, {"txn": 1, "menuID": 2, "price": 1.5})]
    )
    ingest = Ingest(raw, {"bootstrap.servers": broker}, (order, menu), until_caught_up=True)
    assert pkgutil.resolve_name("zync.ingest.consume.sync_from_kafka")(ingest).records == 2
    assert pkgutil.resolve_name("zync.sync.sync_once")(config, raw, staging).outputs == {"order": 1}
