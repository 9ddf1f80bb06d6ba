"""Progress of a recipe on standard error: a line for each trial, and on a terminal a bar with the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from moonfed.experiments.fleet.run import SimulationProgress


class TrialsBar:
    """A progress bar over a recipe's trials, each of equal length."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task
        self._done = 0

    def show(self, progress: SimulationProgress) -> None:
        """Show the progress of the current trial."""
        self._bar.update(self._task, completed=self._done + progress.fraction, description=progress.sentence)

    def say(self, sentence: str) -> None:
        """Print the result of a trial."""
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        self._bar.console.print(f"  {sentence}", markup=False, highlight=False)


@contextmanager
def trials_bar(trials: int) -> Iterator[TrialsBar]:
    """Show a bar for that many trials; it disappears when the context ends, the lines stay."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True, soft_wrap=True)
    # Trials are long and similar: the rate over hours is a better estimate than the last minute's.
    bar = Progress(
        *columns, console=console, transient=True, speed_estimate_period=6 * 3600, disable=not console.is_terminal
    )
    with bar:
        yield TrialsBar(bar, bar.add_task("", total=trials))
