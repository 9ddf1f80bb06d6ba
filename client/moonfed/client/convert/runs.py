"""Conversion of messages about runs, rounds and evaluations."""

from __future__ import annotations

from typing import cast

from moonfed.client.convert.times import moment, moment_or_none
from moonfed.client.records.evaluations import DeviceEvaluation, DeviceScore, Evaluation
from moonfed.client.records.runs import Incident, Ineligible, OpenRound, Round, RoundStatus, Run, RunStatus
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.run_settings import RunSettings
from moonfed.v1 import control_pb2


def run(message: control_pb2.Run) -> Run:
    """Convert a run."""
    status = control_pb2.RunStatus.Name(message.status).removeprefix("RUN_STATUS_").lower()
    settings = RunSettings.received(message.settings)
    return Run(
        run=message.run,
        status=cast(RunStatus, status),
        method=message.method,
        round=message.round,
        rounds=settings.rounds,
        waiting=message.waiting,
        reason=message.reason,
        created=moment(message.created),
        model=message.model.sha256,
        manifest=message.manifest.sha256,
        eligible=message.eligible,
        checking=message.checking,
        ineligible=tuple(Ineligible(reason=one.reason, devices=tuple(one.devices)) for one in message.ineligible),
        absent_classes=tuple(message.absent_classes),
        clipped=dict(message.clipped),
        initial_metrics=dict(message.initial_metrics),
        open_round=_open_round(message.open_round) if message.HasField("open_round") else None,
        settings=settings,
    )


def past_round(run: str, message: control_pb2.Round) -> Round:
    """Convert a committed or abandoned round."""
    status = control_pb2.RoundStatus.Name(message.status).removeprefix("ROUND_STATUS_").lower()
    metrics = dict(message.metrics)
    return Round(
        run=run,
        round=message.round,
        attempt=message.attempt,
        status=cast(RoundStatus, status),
        accuracy=metrics.get("accuracy"),
        loss=metrics.get("loss"),
        train_loss=metrics.get("train_loss"),
        seconds=message.seconds,
        updates=message.updates,
        counted=tuple(message.counted),
        missing=tuple(message.missing),
        reason=message.reason,
        model=message.model.sha256 if message.HasField("model") else None,
        metrics=metrics,
        incidents=tuple(Incident(device=one.device, description=one.description) for one in message.incidents),
        phases=dict(message.phases),
        outcomes=dict(message.outcomes),
        received_bytes=message.received_bytes,
        sent_bytes=message.sent_bytes,
    )


def evaluation(run: str, message: control_pb2.Evaluation) -> Evaluation:
    """Convert an evaluation of a global model."""
    if message.HasField("test_set"):
        score = HeldOutScore.from_message(message.test_set)
        return Evaluation(
            run=run,
            round=message.round,
            test_set=score.test_set,
            accuracy=score.accuracy,
            loss=score.loss,
            samples=score.samples,
            details=score,
        )
    return on_devices(message.devices)


def on_devices(message: control_pb2.DeviceEvaluation) -> Evaluation:
    """Convert an evaluation on devices."""
    found = _device_evaluation(message)
    return Evaluation(
        run=message.run,
        round=message.round,
        test_set=None,
        accuracy=found.median,
        loss=None,
        samples=sum(score.samples for score in found.scores),
        details=found,
    )


def _open_round(message: control_pb2.OpenRound) -> OpenRound:
    return OpenRound(
        round=message.round,
        attempt=message.attempt,
        cohort=tuple(message.cohort),
        reported=tuple(message.reported),
        rejected=tuple(message.rejected),
        declined=tuple(message.declined),
        lost=tuple(message.lost),
        left=tuple(message.left),
        replacements=tuple(message.replacements),
        seconds=message.seconds,
        target=message.target,
        progress=dict(message.progress),
        reasons=dict(message.reasons),
    )


def _device_evaluation(message: control_pb2.DeviceEvaluation) -> DeviceEvaluation:
    summary = message.summary if message.HasField("summary") else None
    return DeviceEvaluation(
        number=message.number,
        opened=moment(message.opened),
        deadline=moment(message.deadline),
        closed=moment_or_none(message.closed),
        scores=tuple(map(_device_score, message.scores)),
        skipped=tuple(Ineligible(reason=one.reason, devices=tuple(one.devices)) for one in message.skipped),
        waiting=tuple(message.waiting),
        median=summary.median if summary else None,
        worst_decile=summary.worst_decile if summary else None,
        compared=summary.compared if summary else 0,
        worse=summary.worse if summary else 0,
    )


def _device_score(message: control_pb2.DeviceScore) -> DeviceScore:
    samples = max(1, message.samples)
    return DeviceScore(
        device=message.device,
        samples=message.samples,
        accuracy=message.correct / samples,
        local_accuracy=message.local_correct / samples if message.HasField("local_correct") else None,
    )
