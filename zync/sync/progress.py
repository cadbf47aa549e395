"""Tells during a large sync how far it is: the stage, and of Spark's tasks how many are done."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from zync.spark.sizing import Sizing
from zync.text import amount

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """How far a sync is.

    Attributes:
        records: The number of its new records.
        behind: The number of records that are left for the next syncs.
        stage: The stage that runs, `start` while Spark starts.
        number: The stage's place among all, from 1 on; 0 for `start`.
        stages: The number of stages.
        done: How many of the tasks that Spark has planned for the stage's present step are done.
        tasks: How many these are; 0 if none are known.
        seconds: The time since the sync began.
        left: The time that the step will take on at its present rate; None if it is not known.
    """

    records: int
    behind: int = 0
    stage: str = "start"
    number: int = 0
    stages: int = 0
    done: int = 0
    tasks: int = 0
    seconds: float = 0.0
    left: float | None = None

    def __str__(self) -> str:
        behind = f" ({self.behind:,} more in the next syncs)" if self.behind else ""
        what = f"sync of {amount(self.records, 'record')}{behind}"
        if not self.number:
            return f"{what}: Spark starts"
        tasks = f", {self.done:,} of {amount(self.tasks, 'task')}" if self.tasks else ""
        left = f", some {self.left:,.0f} s left in this step" if self.left is not None else ""
        return f"{what}: {self.stage} ({self.number} of {self.stages}){tasks}, {self.seconds:,.0f} s so far{left}"


Report = Callable[[Progress | None], None]
"""Shows how far a sync is, called about twice a second; None: it has ended."""


class Watch:
    """Reports in a thread how far a sync is, in this context, if it is a large one.

    Args:
        spark: The sync's session.
        records: The number of its new records.
        behind: The number of records that are left for the next syncs.
        stages: The number of its stages.
        report: What shows it; None: nothing does.
    """

    def __init__(self, spark: SparkSession, records: int, behind: int, stages: int, report: Report | None) -> None:
        self._spark, self._records, self._behind, self._stages = spark, records, behind, stages
        self._report = None if Sizing(records).is_small else report
        self._stage, self._number = "start", 0
        self._step: frozenset[int] = frozenset()
        self._began = self._step_began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> "Watch":
        if self._report:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._report:
            self._thread.join()
            self._report(None)

    def begin(self, stage: str) -> None:
        """Notes that the next stage begins."""
        self._stage, self._number = stage, self._number + 1

    def _watch(self) -> None:
        while self._report and not self._ended.wait(_LOOK_SECONDS):
            with suppress(PySparkException, OSError):  # Spark has ended; the sync raises the error
                self._report(self._look())

    def _look(self) -> Progress:
        """Returns how far the sync is by the stages that Spark runs at the moment."""
        tracker, now = self._spark.sparkContext.statusTracker(), time.monotonic()
        running = {number: tracker.getStageInfo(number) for number in tracker.getActiveStageIds()}
        infos = [info for info in running.values() if info]
        if not self._step & running.keys():
            self._step_began = now
        self._step = frozenset(running)
        done, tasks = sum(info.numCompletedTasks for info in infos), sum(info.numTasks for info in infos)
        left = (now - self._step_began) * (tasks - done) / done if done else None
        began = now - self._began
        return Progress(self._records, self._behind, self._stage, self._number, self._stages, done, tasks, began, left)
