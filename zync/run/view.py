"""The live view of `zync run` on a terminal: a line for each part, below the lines of the log."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zync.run.scrape import Figures, figures
from zync.run.supervisor import Part
from zync.text import amount

_EVERY_SECONDS = 1.0
_WINDOW = 10
"""The number of scrapes over which rates are calculated."""
_SHOWN_EVENTS = ("start", "commit", "sync", "delivered", "result")
"""Events that the view shows as numbers, so that their log lines are left out."""


class View:
    """The parts with their last scrapes.

    Attributes:
        seen: The last scrapes of each part, oldest first, never empty. The tuples are replaced whole, as rich renders
            in a thread of its own.
    """

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self.console = Console(stderr=True, highlight=False)
        self.seen: dict[str, tuple[Figures, ...]] = {part.name: (Figures(),) for part in parts}
        self.began = time.monotonic()
        self._closed = threading.Event()

    def say(self, part: str, level: str, text: str, values: Mapping[str, Any]) -> None:
        """Prints a log line above the view, unless the view shows its content."""
        if level != "info" or values.get("event") not in _SHOWN_EVENTS:
            style = {"warning": "yellow", "error": "red"}.get(level, "")
            self.console.print(Text(f"{part:9} {text}", style=style))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the view in this context."""
        scraper = threading.Thread(target=self._scrape_parts, name="view", daemon=True)
        with Live(get_renderable=self.render, console=self.console, refresh_per_second=2):
            scraper.start()
            try:
                yield
            finally:
                self._closed.set()
                scraper.join(_EVERY_SECONDS)

    def _scrape_parts(self) -> None:
        while not self._closed.wait(_EVERY_SECONDS):
            for part in self.parts:
                scrape = figures(part)
                if scrape.samples:
                    self.note(part, scrape)

    def note(self, part: Part, figures: Figures) -> None:
        """Adds a scrape to those of the rates; drops those of an earlier process, as counters start at 0 again."""
        earlier = self.seen[part.name]
        counts_from_0 = earlier[-1].at < part.began
        self.seen[part.name] = (figures,) if counts_from_0 else (*earlier[1 - _WINDOW :], figures)

    def render(self) -> Group:
        """Renders the view."""
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        for name in ("part", "", "so far", "a second", "now"):
            table.add_column(name, no_wrap=name != "now", justify="right" if name == "a second" else "left")
        for part in self.parts:
            started = self._has_started(part)
            color = "green" if part.address and started else "yellow"
            restarts = f", {amount(part.restarts, 'restart')}" if part.restarts else ""
            state = "starts" if part.state() == "runs" and not started else part.state()
            table.add_row(part.name, Text(state + restarts, style=color), *self._row(part))
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        hint = "stopping" if all(part.ending for part in self.parts) else "Ctrl-C stops"
        title = Text(f"zync run  {minutes}:{seconds:02}   {hint}", style="dim")
        return Group(title, table, Text(self._stages(), style="dim"))

    def _has_started(self, part: Part) -> bool:
        """Returns whether the part's present process has finished its start, so that its numbers are meaningful."""
        now = self.seen[part.name][-1]
        return now.at >= part.began and bool(now.samples) and _HAS_STARTED[part.name](now)

    def _row(self, part: Part) -> tuple[str, str, str]:
        seen = self.seen[part.name]
        now, before = seen[-1], seen[0]
        counter, unit, state = _SHOWN[part.name]
        started = _HAS_STARTED[part.name](now)

        def rate() -> str:
            seconds = now.at - before.at
            return f"{(now.total(counter) - before.total(counter)) / seconds:,.0f}" if before.at and seconds else ""

        if not now.samples:
            return "", "", ""
        return f"{now.total(counter):,.0f} {unit}" if started else "", rate() if started else "", state(now)

    def _stages(self) -> str:
        """Returns the mean seconds of each stage of the last syncs, as a line."""
        seen = self.seen["sync"]
        now, before = seen[-1], seen[0]
        stages = []
        for stage, seconds in now.by("zync_sync_stage_seconds_sum", "stage").items():
            mean = f"{seconds:.2f} s"
            runs = [scrape.by("zync_sync_stage_seconds_count", "stage").get(stage, 0.0) for scrape in (now, before)]
            sums = [seconds, before.by("zync_sync_stage_seconds_sum", "stage").get(stage, 0.0)]
            if runs[0] > runs[1]:
                mean = f"{(sums[0] - sums[1]) / (runs[0] - runs[1]):.2f} s"
            elif runs[0]:
                mean = f"{seconds / runs[0]:.2f} s"
            stages.append(f"{stage} {mean}")
        return f"a sync's stages: {', '.join(stages)}" if stages else ""


def _ingest(now: Figures) -> str:
    seconds = now.by("zync_ingest_lag_seconds", "partition")
    gaps = now.total("zync_ingest_gaps")
    lag = f"{now.total('zync_ingest_lag_offsets'):,.0f} ({max(seconds.values()):.1f} s)" if seconds else "-"
    return f"lag {lag}" + (f", gaps {gaps:.0f}" if gaps else "")


def _sync(now: Figures) -> str:
    in_flight, age = now.total("zync_sync_in_flight"), now.total("zync_sync_oldest_in_flight_age_seconds")
    if math.isnan(in_flight):
        return "in flight -, set aside: -"
    counts = Counter(now.by("zync_sync_undecided_at_start", "kind"))
    counts.update(now.by("zync_sync_set_aside_total", "kind"))
    set_aside = ", ".join(f"{kind} {count:,.0f}" for kind, count in counts.items() if count)
    oldest = f" (oldest {age:.1f} s)" if in_flight else ""
    return f"in flight {in_flight:,.0f}{oldest}, set aside: {set_aside or 'none'}"


def _delivery(now: Figures) -> str:
    sync, behind = now.total("zync_delivery_sync"), now.total("zync_delivery_lag_syncs")
    if math.isnan(sync) or math.isnan(behind):
        return "through sync -"
    return f"through sync {sync:,.0f}, {amount(int(behind), 'sync')} behind"


_SHOWN = {
    "sync-from": ("zync_ingest_records_total", "records", _ingest),
    "sync": ("zync_sync_transactions_total", "transactions", _sync),
    "to kafka": ("zync_delivery_rows_total", "rows", _delivery),
    "to tables": ("zync_delivery_rows_total", "rows", _delivery),
}
"""For each part: the counter that the view shows, its unit, and the function that describes the part's state."""

_HAS_STARTED: dict[str, Callable[[Figures], bool]] = {
    "sync-from": lambda _: True,
    "sync": lambda now: now.total("zync_sync_started") > 0,
    "to kafka": lambda now: not math.isnan(now.total("zync_delivery_sync")),
    "to tables": lambda now: not math.isnan(now.total("zync_delivery_sync")),
}
"""For each part, whether its numbers are known: a first sync may take half a minute after Spark's start."""
