"""The live view of `zync run`: what it shows, and that it can be drawn at any moment."""

import sys
import threading
import time

import pytest
from rich.console import Console

from zync.run.scrape import Figures
from zync.run.supervisor import Part
from zync.run.view import View

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
