from __future__ import annotations

import errno
from dataclasses import replace

import pytest
import sqlalchemy as sql
from prometheus_client import CollectorRegistry

from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.metrics import memory
from moonfed.coordinator.metrics.instruments import Instruments
from moonfed.coordinator.metrics.recorder import MetricsRecorder, method_name, refusal_reason
from moonfed.coordinator.records import RoundRecord
from moonfed.coordinator.rounds.events import STOPPED
from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.errors import AlreadyExists, Corrupt, InvalidInput, ResourceExhausted, TooLate, Unavailable, WrongState
from tests.support.store_records import FIRST

MEBI = 1 << 20
ROUND = RoundRecord(id=FIRST, status="open", cohort=("cam-1", "cam-2"))


class Recorded:
    """A recorder over blobs with known encodings."""

    def __init__(self) -> None:
        self.registry, self.asked = CollectorRegistry(), list[str]()
        self.recorder = MetricsRecorder(Instruments(self.registry), self._encoding_of)

    def _encoding_of(self, sha256: str) -> str | None:
        self.asked.append(sha256)
        return {"model": "int8", "odd": "a device's word"}.get(sha256)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"moonfed_{name}", labels)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def full_disk() -> ResourceExhausted:
    error = ResourceExhausted("the disk is full")
    error.__cause__ = OSError(errno.ENOSPC, "no space left")
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TooLate("the round is closed"), "late"),
        (WrongState("the run has ended"), "late"),
        (AlreadyExists("another update counts"), "duplicate"),
        (Unavailable("the object store is away"), "unavailable"),
        (LeaseLost("another coordinator drives it"), "unavailable"),
        (OSError(errno.ENOSPC, "no space left"), "unavailable"),
        (full_disk(), "unavailable"),
        (sql.exc.OperationalError("INSERT", {}, Exception("the server is away")), "unavailable"),
        (ResourceExhausted("too long"), None),  # reported as rejected, or by the disk budget
        (InvalidInput("NaN"), None),
        (Corrupt("another sha256"), None),
        (ValueError("a bug"), None),
    ],
)
def test_an_errors_type_gives_the_reason_of_a_refusal(error: Exception, reason: str | None, recorded: Recorded) -> None:
    assert refusal_reason(error) == reason
    recorded.recorder.update_refused(error)
    total = sum(
        recorded.value("updates_total", outcome="refused", reason=each) or 0
        for each in ("late", "duplicate", "unavailable")
    )
    assert total == (reason is not None)


def test_methods_have_short_names() -> None:
    assert method_name("/moonfed.v1.Fleet/Submit") == "Fleet/Submit"
    assert method_name("/grpc.health.v1.Health/Check") == "Health/Check"


def test_streams_as_long_as_a_session_are_counted_but_not_timed(recorded: Recorded) -> None:
    for method in ("Fleet/Connect", "Control/WatchRun", "Fleet/Submit"):
        recorded.recorder.call_ended(f"/moonfed.v1.{method}", "OK", 0.5)
        assert recorded.value("calls_total", method=method, status="OK") == 1
    assert recorded.value("call_seconds_count", method="Fleet/Submit") == 1
    assert recorded.value("call_seconds_sum", method="Fleet/Submit") == 0.5
    for method in ("Fleet/Connect", "Control/WatchRun"):
        assert recorded.value("call_seconds_count", method=method) is None


def test_downloads_are_counted_by_encoding_which_is_looked_up_once(recorded: Recorded) -> None:
    for _ in range(3):
        sent = recorded.recorder.download("model")
        sent(100)
        sent(20)
    recorded.recorder.download("plan")(7)
    recorded.recorder.download("odd")(5)
    recorded.recorder.received("int8", 11)
    assert recorded.value("transferred_bytes_total", direction="sent", encoding="int8") == 360
    assert recorded.value("transferred_bytes_total", direction="sent", encoding="other") == 12
    assert recorded.value("transferred_bytes_total", direction="received", encoding="int8") == 11
    assert recorded.asked == ["model", "plan", "odd"]


def test_the_memory_of_a_reduction_is_the_growth_of_the_process(recorded: Recorded) -> None:
    if memory.peak() is None:
        pytest.skip("this system has no /proc")
    with recorded.recorder.reducing():
        filled = bytearray(b"1") * (64 * MEBI)
        del filled
    assert recorded.value("reduction_memory_bytes_count") == 1
    assert 60 * MEBI < (recorded.value("reduction_memory_bytes_sum") or 0) < 400 * MEBI


def test_a_reduction_that_fails_is_measured_too(recorded: Recorded) -> None:
    with pytest.raises(ValueError, match="a bug"), recorded.recorder.reducing():
        raise ValueError("a bug")
    assert recorded.value("reduction_memory_bytes_count") in (0, 1)  # 0 without /proc


def test_a_committed_round_is_timed_by_phase(recorded: Recorded) -> None:
    incidents = (Incident(device="cam-1", description="clipped"), Incident(device="cam-2", description="clipped"))
    phases, outcomes = {"training": 30.0, "commit": 0.5}, {"counted": 3, "missing": 2, "lost": 1}
    recorded.recorder.round_ended(
        replace(ROUND, status="committed", incidents=incidents, phases=phases, outcomes=outcomes)
    )
    assert recorded.value("rounds_total", outcome="committed") == 1
    assert recorded.value("incidents_total") == 2
    assert recorded.value("round_phase_seconds_sum", phase="training") == 30.0
    assert recorded.value("round_phase_seconds_sum", phase="commit") == 0.5
    assert recorded.value("round_phase_seconds_count", phase="upload") == 0
    assert recorded.value("updates_total", outcome="missing", reason="unfinished") == 2


def test_an_abandoned_round_is_counted_without_its_phases(recorded: Recorded) -> None:
    phases, outcomes = {"waiting": 600.0}, {"missing": 5}
    abandoned = replace(ROUND, status="abandoned", reason="1 of the 2 updates needed", phases=phases, outcomes=outcomes)
    recorded.recorder.round_ended(abandoned)
    recorded.recorder.round_ended(replace(abandoned, reason=STOPPED))
    assert recorded.value("rounds_total", outcome="abandoned") == 1
    assert recorded.value("rounds_total", outcome="stopped") == 1
    assert recorded.value("round_phase_seconds_count", phase="waiting") == 0
    assert recorded.value("updates_total", outcome="missing", reason="unfinished") == 5


def test_ends_and_durations(recorded: Recorded) -> None:
    recorder = recorded.recorder
    recorder.run_ended("failed")
    recorder.update_ended("lost", "left")
    recorder.wrote(0.003)
    recorder.fsynced(0.004)
    assert recorded.value("runs_ended_total", outcome="failed") == 1
    assert recorded.value("updates_total", outcome="lost", reason="left") == 1
    assert recorded.value("transaction_seconds_sum") == 0.003
    assert recorded.value("fsync_seconds_sum") == 0.004
