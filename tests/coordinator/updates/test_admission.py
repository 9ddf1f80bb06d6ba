"""Admission of updates: evaluated once, and withdrawn when the run's state no longer allows it."""

from __future__ import annotations

import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.updates.admission import Admissions
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.errors import ResourceExhausted, WrongState
from tests.support.refusals import refused
from tests.support.store_records import FIRST


class Run:
    """A run that rejects the updates of some devices."""

    def __init__(self) -> None:
        self.closed_for: set[str] = set()
        self.admissions = Admissions(self.reject, ByteQuota(largest_update=10))

    def reject(self, attempt: AttemptId, device: str) -> WrongState | None:
        return WrongState(f"{attempt} is closed for {device}") if device in self.closed_for else None


def test_an_admission_is_withdrawn_by_a_review_and_stays_so() -> None:
    run = Run()
    admission = run.admissions.admit(FIRST, "a", may_have_receipt=False)
    admission.require()
    may_have_receipt = [admission.may_have_receipt]
    run.closed_for = {"a"}
    admission.require()
    run.admissions.review()
    with pytest.raises(WrongState, match="is closed for a"):
        admission.require()
    may_have_receipt.append(admission.may_have_receipt)
    assert may_have_receipt == [False, True], "an update of the device may have been counted meanwhile"
    run.closed_for = set()
    run.admissions.review()
    with pytest.raises(WrongState):
        admission.require()


def test_a_rejected_update_may_have_a_receipt() -> None:
    run = Run()
    run.closed_for = {"a"}
    admission = run.admissions.admit(FIRST, "a", may_have_receipt=False)
    assert isinstance(admission.rejection, WrongState)
    assert admission.may_have_receipt


def test_an_event_about_a_device_reviews_its_admissions_alone() -> None:
    run = Run()
    first, again, other = (run.admissions.admit(FIRST, device, may_have_receipt=False) for device in "aab")
    run.closed_for = {"a", "b"}
    run.admissions.review_device("a")
    assert (first.rejection is None, again.rejection is None, other.rejection is None) == (False, False, True)


def test_a_closed_admission_is_no_longer_reviewed() -> None:
    run = Run()
    admission = run.admissions.admit(FIRST, "a", may_have_receipt=False)
    for _ in range(2):
        admission.close()
    run.closed_for = {"a"}
    run.admissions.review()
    assert admission.rejection is None


def test_the_bytes_of_all_a_devices_uploads_in_an_attempt_are_counted() -> None:
    run = Run()
    first, second = (run.admissions.admit(FIRST, "a", may_have_receipt=False) for _ in range(2))
    first.charge(30)
    with refused(ResourceExhausted, "device", "a"):
        second.charge(11)
    second.refund()
    second.charge(40)
    run.admissions.admit(FIRST, "b", may_have_receipt=False).charge(40)
