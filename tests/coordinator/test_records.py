"""Values derived from records."""

from __future__ import annotations

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.records import DeviceReport, RoundRecord, attempt_id
from moonfed.coordinator.rounds.events import Lose
from moonfed.coordinator.rounds.state import OpenRound
from tests.support.store_records import FIRST, MODEL


def test_events_commands_and_open_rounds_belong_to_an_attempt() -> None:
    assert attempt_id("digits", Lose(round=1, attempt=1, device="a")) == FIRST
    assert attempt_id("digits", OpenRound(round=1, attempt=1, cohort=())) == FIRST


def test_no_device_is_missing_from_an_asynchronous_round() -> None:
    record = RoundRecord(id=FIRST, status="committed", cohort=("a", "b"), counted=("b",), blobs={"model": MODEL})
    assert (record.missing, record.model) == (("a",), MODEL)
    asynchronous = RoundRecord(id=FIRST, status="committed", cohort=("a", "b"), counted=("b",), bases={"b": 1})
    assert (asynchronous.missing, asynchronous.model) == ((), None)


def test_the_spool_holds_the_decoded_file_of_a_role() -> None:
    decoded, change = ref_of_bytes(b"decoded"), ref_of_bytes(b"change")
    report = DeviceReport(
        id=FIRST,
        device="a",
        outcome="accepted",
        blobs={"model": MODEL, "variate_change": change},
        decoded={"model": decoded},
    )
    assert report.spooled == {"model": decoded, "variate_change": change}
