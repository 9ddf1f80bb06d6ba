"""A watched run: one line for each round, and the state of the open one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moonfed.control.events import (
    NAMES,
    DeviceDeclined,
    DeviceLeft,
    DeviceLost,
    DevicesJoined,
    Ended,
    MetricsRecorded,
    Paused,
    Progress,
    Resumed,
    RoundAbandoned,
    RoundCommitted,
    RoundOpened,
    RunEvent,
    Snapshot,
    UpdateReceived,
    UpdateRejected,
    Waiting,
)
from moonfed.control.runs import OpenRound, Run
from moonfed.coordinator.cli.format import duration, metrics_text, snapshot_line
from moonfed.coordinator.cli.format_run import slowest_devices
from moonfed.coordinator.cli.layout import shorten, wrap
from moonfed.coordinator.rounds.sizes import updates_closing
from moonfed.formatting import count

WAITING_SECONDS = 60.0  # between two lines about what a run waits for, which changes with every device
BAR, REST = "━", "─"
InAttempt = DevicesJoined | DeviceDeclined | DeviceLeft | DeviceLost | RoundCommitted | UpdateRejected
OUTCOMES: Mapping[type[InAttempt], str] = {  # event of one device to how the round's line calls it
    UpdateRejected: "rejected",
    DeviceDeclined: "declined",
    DeviceLost: "lost",
    DeviceLeft: "left",
}


@dataclass(slots=True)
class WatchedRound:
    """The open round, by the events so far. `opened`: by the watcher's clock."""

    round: int
    attempt: int
    opened: float
    target: int  # updates with which it closes
    pending: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    outcomes: dict[str, str] = field(default_factory=dict)  # of devices without an update
    fractions: dict[str, float] = field(default_factory=dict)  # of the local training of pending devices
    reused: int = 0  # delivered updates of earlier attempts

    def progressed(self, device: str, fraction: float) -> None:
        """Record a device's progress; a lost one is working again."""
        self.outcomes.pop(device, None)
        self.pending.add(device)
        self.fractions[device] = max(fraction, self.fractions.get(device, 0.0))

    def deliver(self, device: str) -> None:
        """Record a device's update."""
        self._settle(device)
        self.outcomes.pop(device, None)
        self.delivered.add(device)

    def fail(self, device: str, outcome: str) -> None:
        """Record that a device will deliver no update, for now."""
        self._settle(device)
        self.outcomes[device] = outcome

    def join(self, devices: Iterable[str]) -> None:
        """Record devices that joined the round."""
        self.pending.update(devices)

    def _settle(self, device: str) -> None:
        self.pending.discard(device)
        self.fractions.pop(device, None)

    def slowest(self) -> str:
        """Name the pending devices that have reported the least."""
        return slowest_devices({device: self.fractions.get(device, 0.0) for device in self.pending})

    def seconds_left(self, now: float) -> float | None:
        """Estimate when enough pending devices will have delivered, from the pace of each; None if unknown."""
        elapsed, needed = now - self.opened, self.target - len(self.delivered)
        if needed <= 0:
            return 0.0
        paces = sorted(elapsed * (1 - fraction) / fraction for fraction in self.fractions.values() if fraction > 0)
        if len(paces) >= needed:
            return paces[needed - 1]
        arrived = len(self.delivered) - self.reused
        return elapsed * needed / arrived if arrived else None


class WatchedRun:
    """A run by its events so far. `clock`: seconds, monotonic; `width`: of the first lines, if it is limited."""

    def __init__(self, clock: Callable[[], float], width: int | None = None) -> None:
        self.run: Run | None = None  # the latest snapshot, which the run's end replaces
        self.open: WatchedRound | None = None
        self.waiting = ""
        self._stated = ""  # the latest line about the run's state
        self._clock, self._width = clock, width
        self._next_waiting = -float("inf")  # when the next line about waiting may be printed
        self._shown: dict[int, Mapping[str, float]] = {}  # metrics that are in the newest lines, by round

    def apply(self, event: RunEvent) -> list[str]:
        """Apply an event; return the lines that it adds to the output."""
        match event:
            case UpdateRejected() | DeviceDeclined() | DeviceLost() | DeviceLeft():
                if current := self._at(event):
                    current.fail(event.device, OUTCOMES[type(event)])
            case Snapshot():
                return self._snapshot(event)
            case Waiting():
                return self._wait(event)
            case RoundOpened():
                self._opened(event)
            case Progress():
                if self.open and event.round == self.open.round:
                    self.open.progressed(event.device, event.fraction)
            case UpdateReceived():
                if self.open:  # in an asynchronous run, the update may have begun in an earlier round
                    self.open.deliver(event.device)
            case DevicesJoined():
                if current := self._at(event):
                    current.join(event.devices)
            case RoundCommitted():
                return self._committed(event)
            case RoundAbandoned():
                self.open, self._next_waiting = None, -float("inf")
                return [f"{self._where(event.round, event.attempt)} abandoned: {event.reason}"]
            case MetricsRecorded():
                return self._metrics(event)
            case Ended():
                self.run, self.open, self.waiting = event.run, None, ""
                return self._state(event.run)
            case Paused() | Resumed():
                return [f"run {self._name()}: {NAMES[type(event)]}"]
        return []

    def status_lines(self, width: int) -> list[str]:
        """Return the state of the open round in at most two lines: a bar, the time left and the slowest devices."""
        if self.open is None:
            return [shorten(self.waiting, width)] if self.waiting else []
        current = self.open
        left = current.seconds_left(self._clock())
        done, text = len(current.delivered), f" {len(current.delivered):,} of {count(current.target, 'update')}"
        text += f", {duration(left)} left" if left else ""
        where = f"{self._where(current.round, current.attempt)} "
        columns = max(0, min(40, width - len(where) - len(text)))
        filled = min(columns, columns * done // max(1, current.target))
        lines = [shorten(f"{where}{BAR * filled}{REST * (columns - filled)}{text}", width)]
        slowest = current.slowest()
        return [*lines, shorten(f"slowest: {slowest}", width)] if slowest else lines

    def _snapshot(self, event: Snapshot) -> list[str]:
        again, self.run = self.run is not None, event.run
        self.open = _resumed(event.run.open_round, self._clock()) if event.run.open_round else None
        return [] if again else self._first(event.run)

    def _first(self, run: Run) -> list[str]:
        """Return the run's state, and the reason if it is waiting, which may be long, on lines of its own."""
        lines = self._state(run)
        if run.reason or not run.waiting:
            return lines
        waiting = [run.waiting] if self._width is None else wrap(run.waiting, self._width)
        return [line.removesuffix(f"; {run.waiting}") for line in lines] + waiting

    def _wait(self, event: Waiting) -> list[str]:
        self.waiting = event.reason
        if self._clock() < self._next_waiting:
            return []
        self._next_waiting = self._clock() + WAITING_SECONDS
        return [event.reason]

    def _opened(self, event: RoundOpened) -> None:
        drawn = len(event.cohort)
        target = updates_closing(self.run.settings, drawn) if self.run else drawn
        self.waiting = ""
        self.open = WatchedRound(event.round, event.attempt, self._clock(), target, set(event.cohort))
        self.open.reused = len(event.reused)
        for device in event.reused:
            self.open.deliver(device)

    def _committed(self, event: RoundCommitted) -> list[str]:
        current = self._at(event)
        self.open = None
        self._next_waiting = -float("inf")
        self._shown = {event.round: dict(event.metrics)}
        number = f"{len(event.counted):,}"
        parts = [f"{number} updates" if number != "1" else "1 update"]
        if current:
            seconds = self._clock() - current.opened
            parts = [f"{number} of {count(max(current.target, len(event.counted)), 'update')} in {duration(seconds)}"]
        parts += [metrics_text(event.metrics)] if event.metrics else []
        line = f"{self._where(event.round, event.attempt)}: {', '.join(parts)}"
        notes = [*_numbers(current), *([event.incidents] if event.incidents else [])]
        return [f"{line}; {', '.join(notes)}" if notes else line]

    def _metrics(self, event: MetricsRecorded) -> list[str]:
        """Report an evaluator's metrics; those of the training are in the round's line."""
        if not event.metrics or dict(event.metrics) == self._shown.get(event.round):
            return []
        return [f"round {event.round} scored: {metrics_text(event.metrics)}"]

    def _state(self, run: Run) -> list[str]:
        """Return the run's state, unless it is in a line already: an ended run's last event repeats its first."""
        before, self._stated = self._stated, snapshot_line(run)
        return [self._stated] if self._stated != before else []

    def _at(self, event: InAttempt) -> WatchedRound | None:
        current = self.open
        return current if current and (current.round, current.attempt) == (event.round, event.attempt) else None

    def _where(self, number: int, attempt: int) -> str:
        rounds = f" of {self.run.rounds}" if self.run else ""
        return f"round {number}{rounds}" + (f", attempt {attempt}" if attempt > 1 else "")

    def _name(self) -> str:
        return self.run.run if self.run else ""


def _resumed(found: OpenRound, now: float) -> WatchedRound:
    """Return the round that is open when the watch begins."""
    current = WatchedRound(found.round, found.attempt, now - found.seconds, found.target, set(found.cohort))
    current.fractions = {device: fraction for device, fraction in found.progress.items() if fraction}
    for device in found.reported:
        current.deliver(device)
    groups = {"rejected": found.rejected, "declined": found.declined, "lost": found.lost, "left": found.left}
    for outcome, devices in groups.items():
        for device in devices:
            current.fail(device, outcome)
    return current


def _numbers(current: WatchedRound | None) -> list[str]:
    """Return how many devices delivered no update, by outcome."""
    found = list(current.outcomes.values()) if current else []
    return [f"{found.count(outcome):,} {outcome}" for outcome in OUTCOMES.values() if outcome in found]
