"""The live view of `zync run`: what it shows, and that it can be drawn at any moment."""

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from zync.deliver.metrics import DeliveryMetrics
from zync.ingest.metrics import IngestMetrics
from zync.metrics.base import Metrics
from zync.run.scrape import Figures
from zync.run.supervisor import Part
from zync.run.view import View
from zync.sync.metrics import SyncMetrics
from zync.sync.outcome import Outcome

RECORDS = ("zync_ingest_records_total", ())


def drawn(view: View) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(view.render())
    return captured.get()


def view_of_two() -> tuple[View, Part]:
    part = Part("sync-from", (), began=1.0, address="localhost:1")
    return View((part, Part("sync", ()))), part


def test_a_part_that_has_measured_nothing_has_no_figures() -> None:
    view, _ = view_of_two()
    assert "records" not in drawn(view)


def test_a_rate_is_over_the_looks_at_one_process() -> None:
    view, part = view_of_two()
    for at, count in ((2.0, 100.0), (4.0, 300.0)):
        view.note(part, Figures(at, {RECORDS: count}))
    assert "300 records" in drawn(view)
    assert " 100 " in drawn(view)  # (300 - 100) / 2 s
    part.began = 5.0
    view.note(part, Figures(6.0, {RECORDS: 7.0}))
    assert "7 records" in drawn(view)
    assert " 100 " not in drawn(view)


def test_a_rate_is_over_the_last_ten_looks() -> None:
    view, part = view_of_two()
    view.note(part, Figures(1.0, {RECORDS: 0.0}))
    for at in range(2, 14):
        view.note(part, Figures(float(at), {RECORDS: 1000.0 + at}))
    assert [one.at for one in view.seen[part.name]] == [float(at) for at in range(4, 14)]
    assert " 1 " in drawn(view)


def test_it_can_be_drawn_while_a_look_is_noted_of_a_part_that_was_just_started_again() -> None:
    view, part = view_of_two()
    failed: list[BaseException] = []
    over = threading.Event()

    def draw() -> None:
        try:
            while not over.is_set():
                view.render()
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    drawing = threading.Thread(target=draw)
    drawing.start()
    try:
        until = time.monotonic() + 0.3
        at = 0.0
        while time.monotonic() < until and not failed:
            at += 1
            part.began = at  # so that each look is the first at its process
            view.note(part, Figures(at, {RECORDS: at}))
    finally:
        over.set()
        drawing.join()
        sys.setswitchinterval(interval)
    assert failed == []


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Part("p", ()), "again in 0 s"),
        (Part("p", (), ending=True), "ended"),
    ],
)
def test_a_part_without_a_process_says_what_it_waits_for(part: Part, expected: str) -> None:
    assert part.state() == expected


def measured(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Its samples as the run takes them."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        (one.name, tuple(sorted(one.labels.items()))): float(one.value) for family in families for one in family.samples
    }


def row(metrics: Metrics, name: str) -> str:
    """What the view shows of a part that runs and measures that."""
    runs = subprocess.Popen(["true"], text=True)  # noqa: S607
    part = Part(name, (), began=1.0, address="localhost:1", process=runs)
    view = View((part, *(Part(one, ()) for one in {"sync-from", "sync"} - {name})))
    view.note(part, Figures(2.0, measured(metrics)))
    runs.wait()
    return next(line for line in drawn(view).splitlines() if line.startswith(f"{name} "))


def test_until_something_is_known_of_a_sync_it_starts_and_says_so() -> None:
    metrics = SyncMetrics()
    shown = row(metrics, "sync")
    assert shown.split() == ["sync", "starts", "in", "flight", "-,", "set", "aside:", "-"]


def test_before_the_first_sync_ends_it_shows_what_staging_has() -> None:
    metrics = SyncMetrics()
    metrics.found(in_flight=3, expired=1, oldest=datetime.now(UTC), undecided={"quarantined": 12, "late": 0})
    shown = row(metrics, "sync")
    assert "starts" in shown
    assert "transactions" not in shown
    assert "in flight 3 (oldest" in shown
    assert "set aside: quarantined 12" in shown


def test_what_is_set_aside_is_what_was_there_and_what_came_since() -> None:
    metrics = SyncMetrics()
    metrics.turn()
    metrics.synced(Outcome(7, 90, 99, transactions=5, set_aside={"quarantined": 2, "late": 1}, seconds={"judge": 0.1}))
    metrics.found(in_flight=3, expired=1, oldest=None, undecided={"quarantined": 12, "late": 0})  # it took longer
    shown = row(metrics, "sync")
    assert " runs " in shown
    assert "5 transactions" in shown
    assert "in flight 0," in shown
    assert "set aside: quarantined 14, late 1" in shown


def test_a_lag_that_is_not_known_is_none() -> None:
    assert row(IngestMetrics(), "sync-from").endswith("lag -")


@pytest.mark.parametrize("name", ["to kafka", "to tables"])
def test_a_delivery_starts_until_it_knows_how_far_it_is(name: str) -> None:
    metrics = DeliveryMetrics()
    shown = row(metrics, name)
    assert ("starts" in shown, shown.endswith("through sync -"), "rows" in shown) == (True, True, False)
    metrics.reached(3, 5)
    shown = row(metrics, name)
    assert (" runs " in shown, shown.endswith("through sync 3, 2 syncs behind"), "0 rows" in shown) == (
        True,
        True,
        True,
    )
