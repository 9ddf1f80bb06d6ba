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
from moonfed.transport.operator_options import DEFAULT_IDENTITY, CoordinatorOption, IdentityOption, InsecureOption

if TYPE_CHECKING:
    from moonfed.coordinator.cli.watch import WatchedRun
    from moonfed.v1 import control_pb2

REFRESHES = 4  # a second, of the bar


def watch(
    run: RunArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per event.")] = False,
) -> None:
    """Follow a run until it ends, across coordinator restarts: one line for each round.

    A terminal also shows the open round: its updates, the time left and the slowest devices. If the output is not a
    terminal, lines begin with the time in UTC. --json prints every event, including the devices' progress. The exit
    code is 0 if the run has finished, 13 if it was stopped, and 14 if it has failed.

    Example: moonfed-coordinator run watch digits
    """
    from moonfed.coordinator.cli.control_client import connect, require_finished
    from moonfed.coordinator.documents.runs import event_document

    ended: control_pb2.Run | None = None
    terminal = sys.stdout.isatty() and not json
    with connect(identity, insecure=insecure, address=coordinator) as console:
        events = console.follow(
            run, lambda problem: typer.echo(f"{problem}; retrying", err=True), progress=json or terminal
        )
        if json:
            for event in events:
                print_json(event_document(event))
                ended = event.run
        else:
            ended = show(events, terminal=terminal)
    if ended:
        require_finished(ended)


def show(events: Iterable[control_pb2.RunEvent], *, terminal: bool) -> control_pb2.Run | None:
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
