"""The command `run watch`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import RunArgument
from moonfed.transport.operator_options import FindEndpoint, operator_options

if TYPE_CHECKING:
    from moonfed.client import Event, Run
    from moonfed.control.events import RunEvent
    from moonfed.coordinator.cli.watch import WatchedRun

REFRESHES = 4  # a second, of the bar


@operator_options
def watch(
    endpoint: FindEndpoint,
    run: RunArgument,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per event.")] = False,
) -> None:
    """Follow a run until it ends, across coordinator restarts: one line for each round.

    A terminal also shows the open round: its updates, the time left and the slowest devices. If the output is not a
    terminal, lines begin with the time in UTC. --json prints every event, including the devices' progress. The exit
    code is 0 if the run has finished, 13 if it was stopped, and 14 if it has failed.

    Example: moonfed-coordinator run watch digits
    """
    from moonfed.client import Coordinator, Ended
    from moonfed.control.document import document

    ended: Run | None = None
    terminal = sys.stdout.isatty() and not json
    with Coordinator(endpoint()) as client:
        events = uninterrupted(client.watch(run, progress=json or terminal))
        if json:
            for event in events:
                print_json(document(event))
                ended = event.run if isinstance(event, Ended) else None
        else:
            ended = show(events, terminal=terminal)
    if ended:
        require_finished(ended)


def uninterrupted(events: Iterable[Event]) -> Iterator[RunEvent]:
    """Yield a run's events; report interruptions."""
    from moonfed.client import Interrupted

    for event in events:
        if isinstance(event, Interrupted):
            typer.echo(f"{event.reason}; retrying", err=True)
        else:
            yield event


def require_finished(run: Run) -> None:
    """Raise RunStopped or RunFailed for a run that has ended without its last model."""
    from moonfed.errors import RunFailed, RunStopped

    if run.status == "stopped":
        raise RunStopped(f"run {run.run!r} was stopped")
    if run.status == "failed":
        raise RunFailed(f"run {run.run!r} has failed: {run.reason}")


def show(events: Iterable[RunEvent], *, terminal: bool) -> Run | None:
    """Print a run's events as lines, with a bar on a terminal; return the run at its end."""
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.coordinator.cli.watch import WatchedRun

    width = terminal_width() - len("03:04:05 ") if terminal else None
    watched, lock = WatchedRun(time.monotonic, width), threading.Lock()
    with _bar(watched, lock) if terminal else _lines() as write:
        for event in events:
            with lock:
                lines = watched.apply(event)
            for line in lines:
                write(line)
    return watched.run


@contextmanager
def _lines() -> Iterator[Callable[[str], None]]:
    """Print lines with the time."""
    yield lambda line: print(f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ} {line}", flush=True)


@contextmanager
def _bar(watched: WatchedRun, lock: threading.Lock) -> Iterator[Callable[[str], None]]:
    """Print lines above the state of the open round, which another thread refreshes."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)

    def status() -> Text:
        with lock:
            lines = watched.status_lines(console.width)
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    with Live(get_renderable=status, console=console, refresh_per_second=REFRESHES, transient=True):
        yield lambda line: console.print(f"{datetime.now().astimezone():%H:%M:%S} {line}", markup=False, soft_wrap=True)
