"""Measurement of one run's attempts, for operators: phases, training times, and the devices without an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moonfed.control.devices import DeviceOutcome
from moonfed.coordinator.records import NOT_MEASURED, AttemptMeasurements, DeviceReport
from moonfed.coordinator.rounds.events import Abandon, Command, Event, Open, Reduce
from moonfed.coordinator.rounds.phases import Moments, phase_seconds
from moonfed.coordinator.rounds.state import Names, State
from moonfed.coordinator.rounds.undelivered import undelivered
from moonfed.coordinator.runs.round_clock import RoundClock


class RoundMeter:
    """The figures of a run's open attempt, which the database lacks. Lives on the run's event loop.

    `trained`: the fraction of the training that a device has reported. `asynchronous`: devices that deliver nothing
    still train when a round closes.
    """

    def __init__(self, clock: RoundClock, trained: Callable[[str], float], *, asynchronous: bool) -> None:
        self.clock = clock
        self._trained = trained
        self._asynchronous = asynchronous
        self._failures: dict[str, tuple[DeviceOutcome, str]] = {}  # of an asynchronous run, since its newest model

    def report(self, report: DeviceReport) -> None:
        """Note a device's report."""
        if report.outcome == "accepted":
            self.clock.counted(report.device, (report.id.round, report.id.attempt))
        elif self._asynchronous:  # it may be about an earlier round
            self._failures[report.device] = report.outcome, report.reason

    def on_step(self, event: Event, state: State, commands: Sequence[Command]) -> None:
        """Note the beginning of an attempt, or of its reduction."""
        for command in commands:
            match command:
                case Open():
                    self.clock.open((command.round, command.attempt))
                case Reduce():
                    self.clock.close()

    def reducing(
        self, state: State, command: Reduce, assigned_bytes: int
    ) -> tuple[Moments | None, AttemptMeasurements]:
        """Return the moments of an attempt that is being reduced, and its figures, as far as they are known."""
        failures = dict(self._failures) if self._asynchronous else undelivered(state, self._trained)
        measured = AttemptMeasurements(
            undelivered=failures, training=self.clock.training(command.devices), assigned_bytes=assigned_bytes
        )
        return self.clock.moments((command.round, command.attempt)), measured

    def committed(self, command: Reduce, measured: AttemptMeasurements) -> None:
        """Forget what a committed round has recorded."""
        self.clock.forget(command.devices)
        for device, failure in measured.undelivered.items():
            if self._failures.get(device) == failure:
                del self._failures[device]

    def abandoning(self, state: State, abandon: Abandon, lost: Names, assigned_bytes: int) -> AttemptMeasurements:
        """Return the figures of an attempt that is abandoned; `state`: before that; `lost`: devices lost since."""
        moments = self.clock.moments((abandon.round, abandon.attempt))
        if moments is None:
            return NOT_MEASURED
        return AttemptMeasurements(
            phases=phase_seconds(moments),
            undelivered=undelivered(state, self._trained, lost),
            training=self.clock.training(state.open.reported if state.open else ()),
            assigned_bytes=assigned_bytes,
        )
