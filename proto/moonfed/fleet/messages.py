"""Conversion between the Fleet service's messages and the value types that both ends share."""

from __future__ import annotations

from moonfed.blobs.store import BlobRef
from moonfed.encodings import parse_encodings
from moonfed.errors import InvalidInput
from moonfed.fleet.assignment import Assignment, AttemptId, EligibilityCheck, RunEnded
from moonfed.fleet.evaluation import EvaluationTask, HoldoutScores
from moonfed.fleet.target_release import OUTCOMES, InstalledRelease, ReleaseReport, TargetRelease
from moonfed.plan.training_spec import TrainingSpec
from moonfed.transport.client import from_message, to_message
from moonfed.v1 import blob_pb2, fleet_pb2


def read_assignment(message: fleet_pb2.Assignment) -> Assignment:
    """Convert and check an assignment from the network; InvalidInput names the field."""
    counted = AttemptId(run=message.run, round=message.counted_round, attempt=message.counted_attempt)
    return Assignment(
        id=AttemptId(run=message.run, round=message.round, attempt=message.attempt),
        manifest=from_message(message.manifest),
        signature=from_message(message.signature) if message.HasField("signature") else None,
        blobs={role: from_message(blob) for role, blob in message.blobs.items()},
        training=_read_training(message.training),
        seed=message.seed,
        counted=counted if message.counted_round else None,
        encodings=parse_encodings(message.downlink_encoding, message.uplink_encoding),
        required_plan=message.required_plan,
        clip_norm=message.clip_norm,
        traceparent=message.traceparent,
    )


def write_assignment(assignment: Assignment) -> fleet_pb2.Assignment:
    """Convert an assignment for the network."""
    id_, counted = assignment.id, assignment.counted
    return fleet_pb2.Assignment(
        run=id_.run,
        round=id_.round,
        attempt=id_.attempt,
        manifest=to_message(assignment.manifest),
        signature=_blob(assignment.signature),
        blobs={role: to_message(ref) for role, ref in assignment.blobs.items()},
        training=fleet_pb2.TrainingSpec(**assignment.training.to_document()),
        seed=assignment.seed,
        counted_round=counted.round if counted else 0,
        counted_attempt=counted.attempt if counted else 0,
        downlink_encoding=str(assignment.encodings.down),
        uplink_encoding=str(assignment.encodings.up),
        required_plan=assignment.required_plan,
        clip_norm=assignment.clip_norm,
        traceparent=assignment.traceparent,
    )


def read_check(message: fleet_pb2.EligibilityCheck) -> EligibilityCheck:
    """Convert and validate an eligibility check from the network; InvalidInput names the field."""
    return EligibilityCheck(
        run=message.run,
        manifest=from_message(message.manifest),
        signature=from_message(message.signature) if message.HasField("signature") else None,
        report_classes=message.report_classes,
        required_plan=message.required_plan,
    )


def write_check(check: EligibilityCheck) -> fleet_pb2.EligibilityCheck:
    """Convert an eligibility check for the network."""
    return fleet_pb2.EligibilityCheck(
        run=check.run,
        manifest=to_message(check.manifest),
        signature=_blob(check.signature),
        report_classes=check.report_classes,
        required_plan=check.required_plan,
    )


def read_run_ended(message: fleet_pb2.RunEnded) -> RunEnded:
    """Convert the end of a run from the network."""
    return RunEnded(run=message.run)


def write_run_ended(ended: RunEnded) -> fleet_pb2.RunEnded:
    """Convert the end of a run for the network."""
    return fleet_pb2.RunEnded(run=ended.run)


def read_target(message: fleet_pb2.TargetRelease) -> TargetRelease:
    """Convert and check a target release from the network; InvalidInput names the field."""
    return TargetRelease(
        name=message.name,
        deployment=message.deployment,
        version=message.version,
        variant=message.variant,
        manifest=from_message(message.manifest) if message.HasField("manifest") else None,
        signature=from_message(message.signature) if message.HasField("signature") else None,
        max_drop=message.max_drop,
        roll_back=message.roll_back,
    )


def write_target(target: TargetRelease) -> fleet_pb2.TargetRelease:
    """Convert a target release for the network."""
    return fleet_pb2.TargetRelease(
        name=target.name,
        deployment=target.deployment,
        version=target.version,
        variant=target.variant,
        manifest=_blob(target.manifest),
        signature=_blob(target.signature),
        max_drop=target.max_drop,
        roll_back=target.roll_back,
    )


def read_installed(message: fleet_pb2.InstalledRelease) -> InstalledRelease:
    """Convert and check an installed release from the network; InvalidInput names the field."""
    return InstalledRelease(
        name=message.name,
        version=message.version,
        variant=message.variant,
        previous=message.previous,
        deployment=message.deployment,
    )


def write_installed(installed: InstalledRelease) -> fleet_pb2.InstalledRelease:
    """Convert an installed release for the network."""
    return fleet_pb2.InstalledRelease(
        name=installed.name,
        version=installed.version,
        variant=installed.variant,
        previous=installed.previous,
        deployment=installed.deployment,
    )


def read_release_report(device: str, message: fleet_pb2.ReportReleaseRequest) -> ReleaseReport:
    """Convert and check a device's report on a target release; InvalidInput names the field."""
    if not 1 <= message.outcome <= len(OUTCOMES):
        raise InvalidInput(field="outcome", value=message.outcome, allowed=f"from 1 to {len(OUTCOMES)}")
    return ReleaseReport(
        device=device,
        name=message.name,
        deployment=message.deployment,
        version=message.version,
        outcome=OUTCOMES[message.outcome - 1],
        installed=read_installed(message.installed),
        reason=message.reason,
        score=message.score if message.HasField("score") else None,
        current_score=message.current_score if message.HasField("current_score") else None,
        samples=message.samples,
        fingerprint=message.fingerprint,
    )


def write_release_report(report: ReleaseReport) -> fleet_pb2.ReportReleaseRequest:
    """Convert a device's report on a target release for the network."""
    return fleet_pb2.ReportReleaseRequest(
        device=report.device,
        name=report.name,
        deployment=report.deployment,
        version=report.version,
        outcome=fleet_pb2.ReleaseOutcome.ValueType(OUTCOMES.index(report.outcome) + 1),
        installed=write_installed(report.installed),
        reason=report.reason,
        score=report.score,
        current_score=report.current_score,
        samples=report.samples,
        fingerprint=report.fingerprint,
    )


def read_evaluation(message: fleet_pb2.EvaluationTask) -> EvaluationTask:
    """Convert and check an evaluation from the network; InvalidInput names the field."""
    return EvaluationTask(
        run=message.run,
        round=message.round,
        number=message.number,
        manifest=from_message(message.manifest),
        signature=from_message(message.signature) if message.HasField("signature") else None,
        model=from_message(message.model),
        seed=message.seed,
        required_plan=message.required_plan,
    )


def write_evaluation(task: EvaluationTask) -> fleet_pb2.EvaluationTask:
    """Convert an evaluation for the network."""
    return fleet_pb2.EvaluationTask(
        run=task.run,
        round=task.round,
        number=task.number,
        manifest=to_message(task.manifest),
        signature=_blob(task.signature),
        model=to_message(task.model),
        seed=task.seed,
        required_plan=task.required_plan,
    )


def read_scores(message: fleet_pb2.HoldoutScores) -> HoldoutScores:
    """Convert and check a device's scores from the network; InvalidInput names the field."""
    local = message.local_score if message.HasField("local_score") else None
    return HoldoutScores(samples=message.samples, score=message.score, local_score=local)


def write_scores(found: HoldoutScores) -> fleet_pb2.HoldoutScores:
    """Convert a device's scores for the network."""
    return fleet_pb2.HoldoutScores(samples=found.samples, score=found.score, local_score=found.local_score)


def _read_training(message: fleet_pb2.TrainingSpec) -> TrainingSpec:
    return TrainingSpec(
        epochs=message.epochs,
        batch_size=message.batch_size,
        views=message.views,
        hyperparameters=dict(message.hyperparameters),
    )


def _blob(ref: BlobRef | None) -> blob_pb2.Blob | None:
    return to_message(ref) if ref else None
