"""A bar on a terminal for work that takes long."""

from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars

from zync.sync.progress import Progress


class Bar:
    """A bar that shows how far a sync is, below the lines of the log, until `close`."""

    def __init__(self, stream: TextIO) -> None:
        console = Console(file=stream, highlight=False)
        self._bars = Bars(BarColumn(), TextColumn("{task.description}"), console=console, transient=True)
        self._task = self._bars.add_task("")
        self._bars.start()

    def show(self, progress: Progress) -> None:
        """Shows how far it is: of the stages, and within the present one by its tasks."""
        within = progress.done / progress.tasks if progress.tasks else 0.0
        done = max(progress.number - 1, 0) + within
        self._bars.update(self._task, completed=done, total=progress.stages or 1, description=str(progress))

    def close(self) -> None:
        """Removes the bar."""
        self._bars.stop()
