"""How `zync run` looks on a terminal: a line for each part, kept up to date, below what there is to say."""

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
"""Rates are over so many looks."""
_ROUTINE = ("start", "commit", "sync", "delivered", "result")
"""Events that the view shows as figures."""


class View:
    """The parts, with what they measured last."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self.console = Console(stderr=True, highlight=False)
        # Of each part at least one, oldest first; replaced whole, as rich renders in a thread of its own.
        self.seen: dict[str, tuple[Figures, ...]] = {part.name: (Figures(),) for part in parts}
        self.began = time.monotonic()
        self._over = threading.Event()

    def say(self, part: str, level: str, text: str, values: Mapping[str, Any]) -> None:
        """A line above the view, if it is more than what the view shows anyway."""
        if level != "info" or values.get("event") not in _ROUTINE:
            style = {"warning": "yellow", "error": "red"}.get(level, "")
            self.console.print(Text(f"{part:9} {text}", style=style))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows it while this context lasts."""
        looking = threading.Thread(target=self._look, name="view", daemon=True)
        with Live(get_renderable=self.render, console=self.console, refresh_per_second=2):
            looking.start()
            try:
                yield
            finally:
                self._over.set()
                looking.join(_EVERY_SECONDS)

    def _look(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            for part in self.parts:
                found = figures(part)
                if found.samples:
                    self.note(part, found)

    def note(self, part: Part, figures: Figures) -> None:
        """Adds the part's figures to those that rates are made of; those of a process before this one go."""
        earlier = self.seen[part.name]
        counts_from_0 = earlier[-1].at < part.began
        self.seen[part.name] = (figures,) if counts_from_0 else (*earlier[1 - _WINDOW :], figures)

    def render(self) -> Group:
        """The view as it is now."""
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        for name in ("part", "", "so far", "a second", "now"):
            table.add_column(name, no_wrap=name != "now", justify="right" if name == "a second" else "left")
        for part in self.parts:
            begun = self._begun(part)
            color = "green" if part.address and begun else "yellow"
            restarts = f", {amount(part.restarts, 'restart')}" if part.restarts else ""
            state = "starts" if part.state() == "runs" and not begun else part.state()
            table.add_row(part.name, Text(state + restarts, style=color), *self._row(part))
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        hint = "stopping" if all(part.ending for part in self.parts) else "Ctrl-C stops"
        title = Text(f"zync run  {minutes}:{seconds:02}   {hint}", style="dim")
        return Group(title, table, Text(self._stages(), style="dim"))

    def _begun(self, part: Part) -> bool:
        """Whether this process of the part has come so far that its figures are more than those of a cold start."""
        now = self.seen[part.name][-1]
        return now.at >= part.began and bool(now.samples) and _BEGUN[part.name](now)

    def _row(self, part: Part) -> tuple[str, str, str]:
        seen = self.seen[part.name]
        now, before = seen[-1], seen[0]
        counted, unit, state = _SHOWN[part.name]
        begun = _BEGUN[part.name](now)

        def rate() -> str:
            took = now.at - before.at
            return f"{(now.total(counted) - before.total(counted)) / took:,.0f}" if before.at and took else ""

        if not now.samples:
            return "", "", ""
        return f"{now.total(counted):,.0f} {unit}" if begun else "", rate() if begun else "", state(now)

    def _stages(self) -> str:
        """What the stages of the last syncs took, in the mean."""
        seen = self.seen["sync"]
        now, before = seen[-1], seen[0]
        took = []
        for stage, seconds in now.by("zync_sync_stage_seconds_sum", "stage").items():
            count = f"{seconds:.2f} s"
            runs = [one.by("zync_sync_stage_seconds_count", "stage").get(stage, 0.0) for one in (now, before)]
            sums = [seconds, before.by("zync_sync_stage_seconds_sum", "stage").get(stage, 0.0)]
            if runs[0] > runs[1]:
                count = f"{(sums[0] - sums[1]) / (runs[0] - runs[1]):.2f} s"
            elif runs[0]:
                count = f"{seconds / runs[0]:.2f} s"
            took.append(f"{stage} {count}")
        return f"a sync's stages: {', '.join(took)}" if took else ""


def _ingest(now: Figures) -> str:
    seconds = now.by("zync_ingest_lag_seconds", "partition")
    gaps = now.total("zync_ingest_gaps")
    lag = f"{now.total('zync_ingest_lag_offsets'):,.0f} ({max(seconds.values()):.1f} s)" if seconds else "-"
    return f"lag {lag}" + (f", gaps {gaps:.0f}" if gaps else "")


def _sync(now: Figures) -> str:
    flying, age = now.total("zync_sync_in_flight"), now.total("zync_sync_oldest_in_flight_age_seconds")
    if math.isnan(flying):
        return "in flight -, set aside: -"
    counts = Counter(now.by("zync_sync_undecided_at_start", "kind"))
    counts.update(now.by("zync_sync_set_aside_total", "kind"))
    aside = ", ".join(f"{kind} {count:,.0f}" for kind, count in counts.items() if count)
    oldest = f" (oldest {age:.1f} s)" if flying else ""
    return f"in flight {flying:,.0f}{oldest}, set aside: {aside or 'none'}"


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
"""Of each part: what is counted, what it is called, and the state beside it."""

_BEGUN: dict[str, Callable[[Figures], bool]] = {
    "sync-from": lambda _: True,
    "sync": lambda now: now.total("zync_sync_started") > 0,
    "to kafka": lambda now: not math.isnan(now.total("zync_delivery_sync")),
    "to tables": lambda now: not math.isnan(now.total("zync_delivery_sync")),
}
"""Of each part, whether its figures are known: a first sync may take half a minute, with Spark's start before it."""
