"""The spans of a run's rounds that its driver sees: the round, the wait before it, and each device's assignment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from moonfed.coordinator.records import AttemptId, RunRecord, attempt_id
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    Declined,
    End,
    Event,
    Join,
    Lose,
    Open,
    Progressed,
    Replace,
    UpdateAccepted,
    UpdateRejected,
)
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.support.trace_contexts import assignment_context, round_context
from moonfed.observability import tracing
from moonfed.observability.spans import NO_SPAN, Span, Value
from moonfed.observability.tracing import tracer

_AboutDevice = Lose | UpdateAccepted | UpdateRejected | Declined | Progressed


class RoundTrace:
    """The open spans of one run; each attempt at a round is a trace of its own.

    `reports_outlive_rounds`: whether assignments stay open when their round ends. A coordinator that stops leaves its
    spans open: the one that resumes the round starts and ends spans with the same ids.
    """

    def __init__(
        self, record: RunRecord, *, reports_outlive_rounds: bool, clock: Callable[[], float] = time.time
    ) -> None:
        self._record = record
        self._outlived = reports_outlive_rounds
        self._clock = clock
        self._waiting_since = clock()
        self._rounds: dict[AttemptId, Span] = {}
        self._assignments: dict[tuple[AttemptId, str], Span] = {}
        self._lost: set[tuple[AttemptId, str]] = set()

    def resume(self, attempt: AttemptId, opened: float) -> None:
        """Continue the trace of a round that was open when the coordinator ended; `opened`: seconds since the epoch."""
        if tracer().on:
            self._begin(attempt, opened)

    def on_step(self, event: Event, state: State, commands: Sequence[Command]) -> None:
        """Follow a step of the state machine: its commands, and its event, which may end a device's assignment."""
        self._event(event)
        if tracer().on:
            for command in commands:
                self._command(command)

    def _command(self, command: Command) -> None:
        match command:
            case Open():
                self._open(command)
            case Replace() | Join():
                self._round(command).event("devices joined")
            case Assign():
                self._assign(attempt_id(self._record.run, command), command.device)
            case Lose():
                self._lose(command)
            case Abandon():
                self._end_round(attempt_id(self._record.run, command), "abandoned", {"reason": command.reason})
            case End():
                self._end_assignments("ended")

    def _event(self, event: Event) -> None:
        match event:
            case UpdateAccepted():
                self._reported(event, "accepted")
            case UpdateRejected():
                self._reported(event, "rejected")
            case Declined():
                self._reported(event, "declined")
            case Progressed():
                self._assignments.get(self._key(event), NO_SPAN).event("makes progress again")

    def _reported(self, event: UpdateAccepted | UpdateRejected | Declined, outcome: str) -> None:
        key = self._key(event)
        self._lost.discard(key)
        if span := self._assignments.pop(key, None):
            span.set(outcome=outcome)
            if outcome != "accepted":
                span.fail(outcome)
            span.end()

    def _key(self, item: _AboutDevice) -> tuple[AttemptId, str]:
        return attempt_id(self._record.run, item), item.device

    def committed(self, attempt: AttemptId, updates: int, incidents: int) -> None:
        """End the span of a round whose model is committed."""
        if tracer().on:
            self._end_round(attempt, "committed", {"updates": updates, "incidents": incidents})

    def reducing(self, attempt: AttemptId) -> AbstractContextManager[None]:
        """Return a context in which spans are children of the round's."""
        return tracing.within(self._rounds[attempt]) if attempt in self._rounds else nullcontext()

    def _round(self, command: Replace | Join) -> Span:
        return self._rounds.get(attempt_id(self._record.run, command), NO_SPAN)

    def _open(self, command: Open) -> None:
        attempt, since = attempt_id(self._record.run, command), self._waiting_since
        root = self._begin(attempt, since)
        root.set(cohort=len(command.cohort), reused=len(command.reused))
        tracer().start("waiting", parent=root.context, began=since).end()

    def _begin(self, attempt: AttemptId, began: float) -> Span:
        root = tracer().start(
            "round", context=round_context(self._record, attempt), began=began, attributes=attempt.log_fields
        )
        self._rounds[attempt] = root
        return root

    def _assign(self, attempt: AttemptId, device: str) -> None:
        if span := self._assignments.get((attempt, device)):
            span.event("assigned again")
            return
        self._assignments[attempt, device] = tracer().start(
            "assignment",
            parent=round_context(self._record, attempt),
            context=assignment_context(self._record, attempt, device),
            attributes={**attempt.log_fields, "device": device},
        )

    def _lose(self, command: Lose) -> None:
        key = self._key(command)
        if span := self._assignments.get(key):
            self._lost.add(key)
            span.event("left" if command.left else "lost")

    def _end_round(self, attempt: AttemptId, outcome: str, attributes: Mapping[str, Value]) -> None:
        root = self._rounds.pop(attempt, NO_SPAN)
        root.set(outcome=outcome, **attributes)
        if outcome == "abandoned":
            root.fail(outcome)
        if not self._outlived:
            self._end_assignments("missing")
        root.end()
        self._waiting_since = self._clock()

    def _end_assignments(self, outcome: str) -> None:
        """End the spans of devices that have not reported."""
        for key, span in self._assignments.items():
            what = "lost" if key in self._lost else outcome
            span.set(outcome=what)
            span.fail(what)
            span.end()
        self._assignments.clear()
        self._lost.clear()
