"""Admission of updates to a run: an update is admitted once, and loses its admission when its round closes."""

from __future__ import annotations

from collections.abc import Callable

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.errors import MoonfedError


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
