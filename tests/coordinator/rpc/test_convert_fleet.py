"""Conversion of the Fleet service's messages."""

from __future__ import annotations

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.records import DeviceReport, EvaluationReport
from moonfed.coordinator.rpc import convert_fleet
from moonfed.errors import InvalidInput, TooLate, WrongState
from moonfed.fleet.assignment import AttemptId, RunEnded
from moonfed.fleet.evaluation import HoldoutScores
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2, fleet_pb2
from moonfed.version import CONTRACT_VERSION

FIRST = AttemptId(run="digits", round=3, attempt=2)
MODEL = ref_of_bytes(b"model")


def header(**fields: object) -> fleet_pb2.SubmitHeader:
    given = {"device": "cam-9", "run": "digits", "round": 3, "attempt": 2, "samples": 7, "steps": 5}
    return fleet_pb2.SubmitHeader(**{**given, **fields})  # type: ignore[arg-type]


def test_a_header_is_of_the_authenticated_device_whatever_it_says() -> None:
    message = header(blobs={"model": to_message(MODEL)}, metrics={"loss": 0.5}, encoding="int8+zstd")
    found = convert_fleet.update_header("cam-1", message)
    assert (found.id, found.device) == (FIRST, "cam-1")
    assert (found.blobs, found.metrics) == ({"model": MODEL}, {"loss": 0.5})
    assert (found.samples, found.steps, str(found.encoding)) == (7, 5, "int8+zstd")
    assert str(convert_fleet.update_header("cam-1", header()).encoding) == "float32"


def test_a_header_with_an_unknown_encoding_or_a_malformed_digest_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="encoding is 'int3'"):
        convert_fleet.update_header("cam-1", header(encoding="int3"))
    with pytest.raises(InvalidInput, match="64 lower-case hexadecimal"):
        convert_fleet.update_header("cam-1", header(blobs={"model": blob_pb2.Blob(sha256="../x", size=1)}))


def test_a_devices_description_is_kept_as_it_was_sent() -> None:
    request = fleet_pb2.ConnectRequest(
        device="cam-9",
        contract_version="1.7",
        plan_interfaces=["a/1", "b/2"],
        platform={"torch": "2.6"},
        samples=5,
        runs=["digits"],
        labels={"site": "north"},
        encodings=["int8"],
    )
    found = convert_fleet.device_info("cam-1", request)
    assert (found.device, found.contract_version, found.plan_interfaces) == ("cam-1", "1.7", ("a/1", "b/2"))
    assert (found.platform, found.samples, found.runs) == ({"torch": "2.6", "plans": "a/1, b/2"}, 5, ("digits",))
    assert (found.labels, found.encodings) == ({"site": "north"}, ("int8",))


@pytest.mark.parametrize(
    ("problem", "stop", "reason", "seconds"),
    [
        (None, False, "", 0.0),
        (WrongState("it has ended"), True, "it has ended", 0.0),
        (TooLate("it has closed", 4.5), True, "it has closed", 4.5),
    ],
)
def test_a_report_is_answered_with_whether_to_stop_and_when_to_come_back(
    problem: WrongState | None, stop: bool, reason: str, seconds: float
) -> None:
    reply = convert_fleet.report_reply(problem)
    assert (reply.stop, reply.reason, reply.retry_after_seconds) == (stop, reason, seconds)


def test_a_session_begins_with_the_version_and_goes_on_with_ends_of_runs() -> None:
    assert convert_fleet.welcome().welcome.contract_version == CONTRACT_VERSION
    assert convert_fleet.connect_reply(RunEnded(run="digits")).ended.run == "digits"


def test_a_receipt_names_the_files_that_the_device_sent() -> None:
    report = DeviceReport(
        id=FIRST, device="cam-1", outcome="accepted", blobs={"model": MODEL}, decoded={"model": ref_of_bytes(b"whole")}
    )
    receipt = convert_fleet.receipt(report).receipt
    assert (receipt.run, receipt.round, receipt.attempt) == ("digits", 3, 2)
    assert dict(receipt.sha256) == {"model": MODEL.sha256}
    resume = convert_fleet.resume({MODEL.sha256: 3}, 4096).resume
    assert (dict(resume.offsets), resume.part_size) == ({MODEL.sha256: 3}, 4096)


ANSWER = {"device": "forged", "run": "r", "round": 3, "number": 2, "model": "f" * 64}
EXPECTED = {"device": "cam-1", "run": "r", "round": 3, "number": 2, "model": "f" * 64}


def test_an_answer_has_scores_or_a_reason_and_the_callers_name() -> None:
    scores = fleet_pb2.HoldoutScores(samples=20, score=0.0, local_score=0.0)
    scored = fleet_pb2.ReportEvaluationRequest(**ANSWER, scores=scores)  # type: ignore[arg-type]
    found = HoldoutScores(samples=20, score=0.0, local_score=0.0)
    assert convert_fleet.evaluation_report("cam-1", scored) == EvaluationReport(**EXPECTED, scores=found)  # type: ignore[arg-type]
    declined = fleet_pb2.ReportEvaluationRequest(**ANSWER, declined="no\nholdout")  # type: ignore[arg-type]
    reason = EvaluationReport(**EXPECTED, reason="no holdout")  # type: ignore[arg-type]
    assert convert_fleet.evaluation_report("cam-1", declined) == reason
    with pytest.raises(InvalidInput, match="answer is missing"):
        convert_fleet.evaluation_report("cam-1", fleet_pb2.ReportEvaluationRequest(**ANSWER))  # type: ignore[arg-type]
    few = fleet_pb2.ReportEvaluationRequest(**ANSWER, scores=fleet_pb2.HoldoutScores(samples=3))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="samples is 3"):
        convert_fleet.evaluation_report("cam-1", few)
