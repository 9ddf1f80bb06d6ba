"""Publication of a run's events: one line in the log, and an event for its subscribers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from moonfed.blobs.store import BlobRef
from moonfed.control import events
from moonfed.control.runs import Run
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.records import AttemptId, DeviceReport, attempt_id
from moonfed.coordinator.rounds.events import STOPPED, Abandon, Command, Discard, Event, Lose, Open, Replace, SetPaused
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.runs.persistence import discarded
from moonfed.coordinator.runs.subscribers import Subscribers
from moonfed.coordinator.updates.receipts import shown_event
from moonfed.formatting import count

_log = logging.getLogger(__name__)


class EventPublisher:
    """Publishes the events of one run."""

    def __init__(self, run: str, observer: Observer = SILENT) -> None:
        self._run = run
        self._observer = observer
        self._about_run = {"run": run}
        self._waiting = ""  # the latest reason published
        self.subscribers = Subscribers()

    def report(self, report: DeviceReport, current: OpenRound | None) -> None:
        """Publish a device's report; `current`: the round, which may still wait for other devices."""
        level = logging.INFO if report.outcome == "accepted" else logging.WARNING
        why = f": {report.reason}" if report.reason else ""
        subject = report.device if report.outcome == "declined" else f"{report.device}'s update"
        _log.log(level, "%s: %s %s%s", report.id, subject, report.outcome, why,
                 extra={"device": report.device})  # fmt: skip
        if not self.subscribers:  # counting the outstanding devices takes a while in a large round
            return
        pending = len(current.outstanding) - (report.device in current.outstanding) if current else 0
        self.subscribers.publish(shown_event(report, pending))

    def on_step(self, event: Event, state: State, commands: Sequence[Command]) -> None:
        """Publish the commands of a step of the state machine that concern operators."""
        for command in commands:
            self._command(command)

    def _command(self, command: Command) -> None:
        match command:
            case Open():
                self._opened(command)
            case Replace():
                self._joined(command)
            case SetPaused():
                self._set_paused(paused=command.paused)
            case Lose():
                self._lost(command)
            case Discard():
                self._observer.update_ended("rejected", "damaged")
                self.report(discarded(self._run, command), None)
            case Abandon():
                self._abandoned(command)

    def progress(self, attempt: AttemptId, device: str, fraction: float) -> None:
        """Publish a device's progress."""
        self.subscribers.publish(
            events.Progress(round=attempt.round, attempt=attempt.attempt, device=device, fraction=fraction)
        )

    def _opened(self, command: Open) -> None:
        _log.info("%s opened for %s", attempt_id(self._run, command), ", ".join(command.cohort))
        reused = tuple(sorted(command.reused))
        self.subscribers.publish(
            events.RoundOpened(round=command.round, attempt=command.attempt, cohort=command.cohort, reused=reused)
        )

    def _joined(self, command: Replace) -> None:
        _log.info("%s: replacements: %s", attempt_id(self._run, command), ", ".join(command.devices))
        self.subscribers.publish(
            events.DevicesJoined(round=command.round, attempt=command.attempt, devices=command.devices)
        )

    def _set_paused(self, *, paused: bool) -> None:
        _log.info("run %r is %s", self._run, "paused" if paused else "resumed", extra=self._about_run)
        self.subscribers.publish(events.Paused() if paused else events.Resumed())

    def _lost(self, command: Lose) -> None:
        attempt = attempt_id(self._run, command)
        self._observer.update_ended("lost", "left" if command.left else "silent")
        if command.left:
            _log.info("%s: %s has left", attempt, command.device, extra={"device": command.device})
        else:
            _log.warning("%s: %s is lost", attempt, command.device, extra={"device": command.device})
        kind = events.DeviceLeft if command.left else events.DeviceLost
        self.subscribers.publish(kind(round=command.round, attempt=command.attempt, device=command.device))

    def _abandoned(self, command: Abandon) -> None:
        attempt = attempt_id(self._run, command)
        level = logging.INFO if command.reason.startswith(STOPPED) else logging.WARNING
        _log.log(level, "%s abandoned: %s", attempt, command.reason)
        self.subscribers.publish(
            events.RoundAbandoned(
                round=command.round, attempt=command.attempt, missing=command.missing, reason=command.reason
            )
        )

    def commit(
        self,
        attempt: AttemptId,
        devices: tuple[str, ...],
        model: BlobRef,
        metrics: Mapping[str, float],
        incidents: Sequence[Incident],
    ) -> None:
        """Publish a committed round; the incidents' figures are in the log and with the round."""
        for incident in incidents:
            _log.warning("%s: %s: %s", attempt, incident.device, incident.description,
                         extra={"device": incident.device})  # fmt: skip
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()) or "no metrics"
        _log.info("%s committed with %s; %s", attempt, count(len(devices), "update"), shown)
        self.subscribers.publish(
            events.RoundCommitted(
                round=attempt.round,
                attempt=attempt.attempt,
                counted=devices,
                model=model,
                incidents=f"incidents: {', '.join(sorted({one.device for one in incidents}))}" if incidents else "",
                metrics=metrics,
            )
        )
        self.metrics(attempt.round, metrics)

    def metrics(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Publish new metrics of a global model."""
        self.subscribers.publish(events.MetricsRecorded(round=round_, metrics=metrics))

    def waiting(self, reason: str) -> None:
        """Publish the reason that the run waits between two rounds, whenever it changes."""
        if reason and reason != self._waiting:
            _log.info("run %r: %s", self._run, reason, extra=self._about_run)
            self.subscribers.publish(events.Waiting(reason=reason))
        self._waiting = reason

    def end(self, view: Run) -> None:
        """Publish the end of the run, after which nothing happens."""
        if view.status in ("finished", "stopped", "failed"):
            self._observer.run_ended(view.status)
        if view.status == "failed":
            _log.error("run %r has failed: %s", self._run, view.reason, extra=self._about_run)
        else:
            how = "finished" if view.status == "finished" else "been stopped"
            _log.info("run %r has %s", self._run, how, extra=self._about_run)
        self.subscribers.publish(events.Ended(run=view))
        self.subscribers.close()
