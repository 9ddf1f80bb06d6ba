"""Admission of updates to a run: an update is admitted once, and loses its admission when its round closes."""

from __future__ import annotations

from collections.abc import Callable

from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.errors import MoonfedError, TooLate, WrongState


class Admission:
    """A run's consent to receive one device's update, until the run withdraws it. Callers must close it."""

    def __init__(self, admissions: Admissions, attempt: AttemptId, device: str) -> None:
        self.attempt, self.device = attempt, device
        self.rejection: MoonfedError | None = None  # why the run does not count the update, or no longer does
        self.may_have_receipt = True  # False while no update of the device can have been counted in the attempt
        self._admissions = admissions

    def require(self) -> None:
        """Raise the rejection if the run has withdrawn its consent."""
        if self.rejection:
            raise self.rejection

    def charge(self, size: int) -> None:
        """Count received bytes against the device's quota; raises ResourceExhausted beyond it."""
        self._admissions.quota.charge(self.attempt, self.device, size)

    def refund(self) -> None:
        """Reset the device's count: its bytes arrived, but an internal failure makes it send them again."""
        self._admissions.quota.refund(self.attempt, self.device)

    def close(self) -> None:
        """Stop listening to the run; harmless when repeated."""
        self._admissions.discard(self)


class Admissions:
    """The updates that one run is receiving. Lives on the run's event loop.

    `reject` returns the reason why the run does not count a device's update now, or None.
    """

    def __init__(self, reject: Callable[[AttemptId, str], MoonfedError | None], quota: ByteQuota) -> None:
        self._reject, self.quota = reject, quota
        self._open: dict[str, set[Admission]] = {}  # by device

    def admit(self, attempt: AttemptId, device: str, *, may_have_receipt: bool) -> Admission:
        """Evaluate the admission of an update, which may be rejected at once."""
        admission = Admission(self, attempt, device)
        admission.rejection = self._reject(attempt, device)
        admission.may_have_receipt = may_have_receipt or admission.rejection is not None
        self._open.setdefault(device, set()).add(admission)
        return admission

    def discard(self, admission: Admission) -> None:
        """Remove a closed admission."""
        admissions = self._open.get(admission.device, set())
        admissions.discard(admission)
        if not admissions:
            self._open.pop(admission.device, None)

    def review(self) -> None:
        """Withdraw every admission that the run's present state rejects."""
        for device in self._open:
            self.review_device(device)

    def review_device(self, device: str) -> None:
        """Withdraw a device's admissions that the run's present state rejects, after an event about that device."""
        for admission in self._open.get(device, ()):
            admission.may_have_receipt = True
            admission.rejection = admission.rejection or self._reject(admission.attempt, device)


def needed_attempts(record: RunRecord, state: State) -> set[AttemptId]:
    """Return the attempts whose updates may still arrive, or are in the spool."""
    attempts = round_protocol(record.settings).needed_attempts(record.settings, state)
    return {AttemptId(run=record.run, round=round_, attempt=attempt) for round_, attempt in attempts}


def phase(state: State) -> tuple[object, ...]:
    """Return the part of a run's state on which its admissions depend, apart from the reports of their own devices."""
    current = state.open
    position = (current.round, current.attempt, current.reducing, current.overdue) if current else None
    return state.status, state.stopping, state.committed, position


def rejection_reason(
    record: RunRecord, state: State, eta: RoundEta, attempt: AttemptId, device: str
) -> WrongState | None:
    """Return why a run does not count a device's update now, if so; TooLate estimates when to return."""
    protocol = round_protocol(record.settings)
    problem = protocol.rejection_reason(record.settings, state, attempt.round, attempt.attempt, device)
    if problem is None:
        return None
    sentence, current = f"run {record.run!r}: {problem}", state.open
    if current and attempt in needed_attempts(record, state) and not (current.reducing or current.overdue):
        return WrongState(sentence)  # the device is not in the round
    return TooLate(sentence, eta.until_next_round(state))
