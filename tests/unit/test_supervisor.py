"""Which parts `zync run` has, when it starts one again, and when it gives one up."""

import json
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from zync.config.model import Config, Deliver, KafkaDelivery
from zync.errors import OwnedError, UsageError
from zync.run import supervisor
from zync.run.supervisor import Part, Pipeline, parts

FAILED, MISTAKE, OWNED = 1, UsageError.exit_code, OwnedError.exit_code


@dataclass
class Run:
    """A pipeline whose parts are no processes: a test says with what they end."""

    parts: tuple[Part, ...]
    said: list[tuple[str, str, str]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def ended(self, part: Part, code: int, after: float = 1.0) -> str:
        """What is said of a part that ended with that code, so many seconds after it began."""
        part.began = time.monotonic() - after
        Pipeline(self.parts, self.stop, self._say)._again(part, code)  # noqa: SLF001
        return self.said[-1][2]

    def _say(self, part: str, level: str, text: str, _: Mapping[str, Any]) -> None:
        self.said.append((part, level, text))


@pytest.fixture
def run() -> Run:
    return Run((Part("sync-from", ()), Part("sync", (), stands_by=True)))


def test_a_part_that_fails_is_started_again_after_a_while_that_grows(run: Run) -> None:
    waits = [run.ended(run.parts[0], FAILED).rpartition(" in ")[2] for _ in range(8)]
    assert waits == ["1 s", "2 s", "4 s", "8 s", "16 s", "32 s", "60 s", "60 s"]
    assert run.ended(run.parts[0], FAILED, after=61).endswith("started again in 1 s")
    assert run.parts[0].restarts == 9
    assert not run.parts[0].given_up


def test_a_part_whose_table_another_has_is_started_again_after_three_seconds(run: Run) -> None:
    for _ in range(5):
        assert run.ended(run.parts[0], OWNED).endswith("exit code 3; started again in 3 s")


def test_a_part_whose_table_another_has_is_started_again_as_its_standby(run: Run) -> None:
    sync = run.parts[1]
    for _ in range(2):
        assert run.ended(sync, OWNED).endswith("exit code 3; started again in 3 s as a standby")
        assert sync.as_standby
    run.ended(run.parts[0], OWNED)  # sync-from shares its topics, and has no standby
    assert not run.parts[0].as_standby


def test_a_standby_that_dies_while_it_waits_stays_one_and_others_are_tried_without(run: Run) -> None:
    sync = run.parts[1]
    run.ended(sync, OWNED)
    sync.waits = True
    run.ended(sync, FAILED)
    assert sync.as_standby
    sync.waits = False  # it could not wait, as the store takes no lease, or had taken over
    run.ended(sync, FAILED)
    assert not sync.as_standby


def test_a_part_that_waits_says_so(run: Run) -> None:
    sync, pipeline = run.parts[1], Pipeline(run.parts, run.stop, run._say)  # noqa: SLF001
    sync.process, sync.address = subprocess.Popen(["true"], text=True), "localhost:1"
    sync.process.wait()
    states = []
    for event in ("metrics", "standby", "other", "took_over", "other"):
        line = json.dumps({"level": "info", "message": "", "event": event, "address": "localhost:1"})
        pipeline._log(sync, [line])  # noqa: SLF001
        states.append(sync.state())
    assert states == ["runs", "standby", "standby", "runs", "runs"]


def test_the_parts_of_a_standby_wait_and_share_the_topics_without_a_name_of_their_host(tmp_path: Path) -> None:
    config = Config(deliver=Deliver(kafka=KafkaDelivery(), tables={}))
    made = parts(config, str(tmp_path), {}, standby=True, is_alone=False)
    assert ["--standby" in part.command for part in made] == [False, True, True, True]
    assert "--instance" not in made[0].command


def test_a_mistake_three_times_in_a_row_ends_the_run_where_the_part_never_ran(run: Run) -> None:
    part = run.parts[0]
    for _ in range(2):
        assert "started again" in run.ended(part, MISTAKE)
        assert not run.stop.is_set()
    said = run.ended(part, MISTAKE)
    assert said == (
        "ended with exit code 2, 3 times in a row: not started again, as that is not what mends it; all parts stop"
    )
    assert run.said[-1][:2] == ("sync-from", "error")
    assert run.stop.is_set()
    assert part.state() == "given up (exit code 2)"


def test_a_mistake_of_a_part_that_ran_for_a_minute_leaves_the_others_to_go_on(run: Run) -> None:
    part = run.parts[0]
    run.ended(part, MISTAKE, after=3600)
    run.ended(part, MISTAKE)
    assert run.ended(part, MISTAKE).endswith("the other parts go on")
    assert part.given_up
    assert not run.stop.is_set()


def test_a_run_whose_parts_are_all_given_up_ends(run: Run) -> None:
    for part in run.parts:
        for after in (3600, 1, 1):
            run.ended(part, MISTAKE, after=after)
    assert run.said[-1][2].endswith("all parts stop")
    assert run.stop.is_set()


def test_only_mistakes_in_a_row_count(run: Run) -> None:
    part = run.parts[0]
    for code in (MISTAKE, MISTAKE, FAILED, MISTAKE, MISTAKE, OWNED, MISTAKE, MISTAKE):
        run.ended(part, code)
    run.ended(part, MISTAKE, after=61)  # it ran for a minute before
    assert not part.given_up
    assert not run.stop.is_set()


def test_a_part_that_is_given_up_is_not_tended_and_the_run_exits_with_2(run: Run) -> None:
    for part in run.parts:
        part.mistakes = 3
    assert Pipeline(run.parts, run.stop, run._say).run(run.stop.set) == 2  # noqa: SLF001
    assert [part.process for part in run.parts] == [None, None]


def test_a_run_that_was_stopped_before_anything_began_ends_well(run: Run) -> None:
    run.stop.set()
    assert Pipeline(run.parts, run.stop, run._say).run() == 0  # noqa: SLF001


def test_each_part_gets_the_options_that_are_for_it(tmp_path: Path) -> None:
    options = {"--config": "/c.yaml", "--bootstrap-servers": "k:1", "--commit-every": "1s"}
    config = Config(deliver=Deliver(kafka=KafkaDelivery(), tables={}))
    commands = {part.name: " ".join(part.command) for part in parts(config, str(tmp_path), options)}
    shared = f"--lake {tmp_path} --metrics localhost:0 --log-format json --config /c.yaml"
    assert commands["sync"] == f"sync raw staging --follow {shared}"
    assert commands["to tables"] == f"sync-to tables staging {shared}"
    assert commands["to kafka"] == f"sync-to kafka staging {shared} --bootstrap-servers k:1"
    assert commands["sync-from"].startswith("sync-from kafka raw --instance zync-run-")
    assert commands["sync-from"].endswith(f"{shared} --bootstrap-servers k:1 --commit-every 1s")


def test_a_delivery_to_another_kafka_keeps_its_servers(tmp_path: Path) -> None:
    delivery = KafkaDelivery(properties={"bootstrap.servers": "elsewhere:1"})
    made = parts(Config(deliver=Deliver(kafka=delivery)), str(tmp_path), {"--bootstrap-servers": "k:1"})
    assert ["--bootstrap-servers" in part.command for part in made] == [True, False, False]


def test_sync_from_has_the_same_name_each_time_unless_the_config_has_one(tmp_path: Path) -> None:
    def instance(lake: Path, config: Config = Config()) -> str:  # noqa: B008 - it is frozen
        command = parts(config, str(lake), {})[0].command
        return command[command.index("--instance") + 1] if "--instance" in command else ""

    assert instance(tmp_path) == instance(tmp_path)
    assert instance(tmp_path) != instance(tmp_path / "other")
    assert instance(tmp_path, Config(kafka={"group.instance.id": "mine"})) == ""


def test_a_summary_counts_restarts() -> None:
    assert supervisor.summary((Part("a", (), restarts=1), Part("b", ()))) == "a: 1 restart, b: 0 restarts"
