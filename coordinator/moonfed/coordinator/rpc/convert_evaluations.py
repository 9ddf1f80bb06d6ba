"""Conversion of the messages about evaluations."""

from __future__ import annotations

from moonfed.control.held_out_score import HeldOutScore
from moonfed.coordinator.devices.eligibility import by_reason
from moonfed.coordinator.records import MAX_REASON, EvaluationRecord, EvaluationReport
from moonfed.coordinator.rounds.evaluation import summarise
from moonfed.errors import InvalidInput
from moonfed.fleet.messages import read_counts
from moonfed.printable import printable
from moonfed.v1 import control_pb2, fleet_pb2


def report(device: str, message: fleet_pb2.ReportEvaluationRequest) -> EvaluationReport:
    """Convert a device's answer; InvalidInput if it has neither counts nor a reason."""
    if message.WhichOneof("answer") is None:
        raise InvalidInput("answer is missing; it must be counts, or the reason why there are none")
    return EvaluationReport(
        device=device,
        run=message.run,
        round=message.round,
        number=message.number,
        model=message.model,
        counts=read_counts(message.counts) if message.HasField("counts") else None,
        reason=printable(message.declined[:MAX_REASON]),
    )


def evaluation(round_: int, found: HeldOutScore | EvaluationRecord) -> control_pb2.Evaluation:
    """Convert an evaluation of a global model."""
    if isinstance(found, HeldOutScore):
        return control_pb2.Evaluation(round=round_, test_set=found.to_message())
    return control_pb2.Evaluation(round=round_, devices=device_evaluation(found))


def device_evaluation(record: EvaluationRecord) -> control_pb2.DeviceEvaluation:
    """Convert an evaluation on devices, with its summary."""
    summary = summarise(record.scores)
    return control_pb2.DeviceEvaluation(
        run=record.run,
        round=record.round,
        number=record.number,
        opened=record.opened,
        deadline=record.deadline,
        closed=record.closed,
        scores=[
            control_pb2.DeviceScore(
                device=score.device, samples=score.samples, correct=score.correct, local_correct=score.local_correct
            )
            for score in record.scores
        ],
        summary=control_pb2.DeviceSummary(
            devices=summary.devices,
            median=summary.median,
            worst_decile=summary.worst_decile,
            compared=summary.compared,
            worse=summary.worse,
        )
        if summary
        else None,
        skipped=[
            control_pb2.SkippedDevices(reason=reason, devices=devices)
            for reason, devices in by_reason(record.declined).items()
        ],
        waiting=sorted(record.pending - record.gone),
    )
