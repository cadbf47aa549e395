"""The demos do and print what the tutorials say."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import rows, run_here
from tests.docs.pages import CHECKOUT, Block, blocks, page, planned, shell
from zync.demo import bank as demo
from zync.demo.simulated import SimulatedBank
from zync.kafka.dev_broker import DevKafka

BANK, ORDERS = page("docs/tutorial/bank.md"), page("docs/tutorial/orders.md")
_COUNT = re.compile(r"-?\d[\d,]*")
SUMS = [block for block in blocks("text") if "BROKEN" in block.text]
"""Where a page quotes what the demo of the bank prints."""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What `make demo DEMO=orders` runs, run: where, and what it printed."""
    folder = tmp_path_factory.mktemp("demonstration")
    *_, command = planned("demo", "DEMO=orders")
    assert command == ".venv/bin/zync demo --what orders"
    done = shell(command.removeprefix(".venv/bin/"), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `make demo` prints, if it watches for two seconds a bank that makes a fifth of the transfers."""
    *_, command = planned("demo")
    assert command == ".venv/bin/zync demo --what bank"
    words = [*command.removeprefix(".venv/bin/zync ").split(), "--seconds", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SimulatedBank", partial(SimulatedBank, rate=10))
        patch.setenv("ZYNC_LAKE", "nowhere")
        done = run_here(words, tmp_path_factory.mktemp("bank"))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_readme_and_tutorial_quote_the_same_sums() -> None:
    assert {block.page for block in SUMS} == {"README.md", BANK.name}
    assert len({block.text for block in SUMS}) == 1


def test_the_demo_of_the_bank_prints_what_is_quoted(bank: str) -> None:
    printed = _COUNT.sub("0", bank).replace("equal", "BROKEN")
    for line in SUMS[0].text.splitlines():
        gist = r"\s+".join(re.escape(_COUNT.sub("0", word)) for word in line.split())
        assert re.search(gist.replace("equal", "BROKEN"), printed), (line, bank)
    assert ", 0 times in zync's tables." in bank
    truth, tables = re.findall(r"(?:the bank itself says|zync's four tables say) (-?\d[\d,]*)", bank)
    assert truth.strip(",") == tables.strip(",")


def test_the_config_of_the_bank_is_the_demos() -> None:
    (block,) = (one for one in BANK.blocks if one.language == "yaml")
    config = (CHECKOUT / "demo" / "bank" / "zync.yaml").read_text().splitlines()
    assert [line for line in block.text.splitlines() if line not in config] == []


def test_the_demos_commands_to_look_around_are_those_of_the_tutorials(orders: tuple[Path, str], bank: str) -> None:
    for tutorial, printed in ((BANK, bank), (ORDERS, orders[1])):
        (block,) = (one for one in tutorial.blocks if "cd zync-demo" in one.commands)
        for command in block.commands:
            assert re.search(rf"(?m)^  .*{re.escape(command.removeprefix('zync '))}$", printed), command


def test_the_demo_of_orders_prints_what_the_tutorial_shows(orders: tuple[Path, str]) -> None:
    rest = orders[1]
    for block in (one for one in ORDERS.blocks if one.language == "console"):
        for command, output in block.commands.items():
            _, found, rest = rest.partition(f"$ {command}\n")
            assert found, f"{command} is not there, or not in this place:\n{orders[1]}"
            for line in output.splitlines():
                assert f"{line}\n" in rest, orders[1]


def records(block: Block) -> list[Any]:
    return [json.loads(line) for line in block.text.splitlines()]


def test_the_records_of_the_tutorial_are_the_demos(orders: tuple[Path, str]) -> None:
    sent, output = (records(block) for block in ORDERS.blocks if block.language == "json")
    lines = map(json.loads, (CHECKOUT / "demo" / "consume-1.jsonl").read_text().splitlines())
    assert sent == [{"topic": one["kafka"]["topic"], "value": one["value"]} for one in lines]
    staging = rows(orders[0] / "zync-demo" / "lake" / "staging")
    assert output == [json.loads(row["value"]) for row in staging if row["kind"] == "output"]


def test_the_demo_lands_both_transactions(orders: tuple[Path, str]) -> None:
    where, printed = orders
    assert re.search(r"^sync 2: 1 transaction of 1 record;.* cursor 4, head 4$", printed, re.MULTILINE)
    (folder,) = set(re.findall(r"folder `([\w-]+)` stays", BANK.text + ORDERS.text))
    values = [row["value"] for row in rows(where / folder / "lake" / "staging") if row["kind"] == "output"]
    assert values == [
        '{"customerID":1,"menuID":200,"qty":2,"total":3.98}',
        '{"customerID":2,"menuID":100,"qty":1,"total":5.99}',
    ]
    assert DevKafka(where / folder / ".zync" / "broker").pid() is None
