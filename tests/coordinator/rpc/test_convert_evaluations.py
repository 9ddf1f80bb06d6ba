"""The messages about evaluations."""

from __future__ import annotations

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.control.held_out_score import HeldOutScore
from moonfed.coordinator.records import EvaluationRecord, EvaluationReport
from moonfed.coordinator.rounds.evaluation import DeviceScore
from moonfed.coordinator.rpc import convert_evaluations as convert
from moonfed.errors import InvalidInput
from moonfed.fleet.evaluation import HoldoutCounts
from moonfed.v1 import fleet_pb2
from tests.proto.control.test_held_out_score import SCORE

ANSWER = {"device": "forged", "run": "r", "round": 3, "number": 2, "model": "f" * 64}
EXPECTED = {"device": "cam-1", "run": "r", "round": 3, "number": 2, "model": "f" * 64}


def test_an_answer_has_counts_or_a_reason_and_the_callers_name() -> None:
    counts = fleet_pb2.HoldoutCounts(samples=20, correct=0, local_correct=0)
    scored = fleet_pb2.ReportEvaluationRequest(**ANSWER, counts=counts)  # type: ignore[arg-type]
    found = HoldoutCounts(samples=20, correct=0, local_correct=0)
    assert convert.report("cam-1", scored) == EvaluationReport(**EXPECTED, counts=found)  # type: ignore[arg-type]
    declined = fleet_pb2.ReportEvaluationRequest(**ANSWER, declined="no\nholdout")  # type: ignore[arg-type]
    reason = EvaluationReport(**EXPECTED, reason="no holdout")  # type: ignore[arg-type]
    assert convert.report("cam-1", declined) == reason
    with pytest.raises(InvalidInput, match="answer is missing"):
        convert.report("cam-1", fleet_pb2.ReportEvaluationRequest(**ANSWER))  # type: ignore[arg-type]
    few = fleet_pb2.ReportEvaluationRequest(**ANSWER, counts=fleet_pb2.HoldoutCounts(samples=3))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="samples is 3"):
        convert.report("cam-1", few)


def test_an_evaluation_names_devices_by_reason_and_has_a_summary_once_there_is_a_score() -> None:
    record = EvaluationRecord(
        run="r",
        round=3,
        number=2,
        model=ref_of_bytes(b"model"),
        opened=1.0,
        deadline=2.0,
        declined={"cam-4": "small", "cam-3": "no holdout", "cam-2": "no holdout"},
        pending=frozenset({"cam-9", "cam-8", "cam-7"}),
        gone=frozenset({"cam-7"}),
    )
    message = convert.evaluation(3, record).devices
    assert [(group.reason, list(group.devices)) for group in message.skipped] == [
        ("no holdout", ["cam-2", "cam-3"]),
        ("small", ["cam-4"]),
    ]
    assert (list(message.waiting), message.HasField("summary")) == (["cam-8", "cam-9"], False)
    scores = (
        DeviceScore(device="cam-1", samples=20, correct=10, local_correct=0),
        DeviceScore(device="cam-5", samples=40, correct=30),
    )
    scored = convert.device_evaluation(EvaluationRecord(**{**fields_of(record), "scores": scores}))  # type: ignore[arg-type]
    assert (scored.summary.devices, scored.summary.median, scored.summary.worst_decile) == (2, 0.625, 0.5)
    assert [score.HasField("local_correct") for score in scored.scores] == [True, False]
    assert (scored.run, scored.round, scored.number, scored.closed) == ("r", 3, 2, 0.0)


def fields_of(record: EvaluationRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_a_score_on_a_test_set_is_sent_whole() -> None:
    message = convert.evaluation(3, SCORE)
    assert message.round == 3
    assert HeldOutScore.from_message(message.test_set) == SCORE
