"""Conversion of the Fleet service's messages."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.coordinator.devices.sessions import DeviceInfo, Message
from moonfed.coordinator.records import MAX_REASON, AttemptId, DeviceReport, EvaluationReport
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.encodings import parse_encoding
from moonfed.errors import InvalidInput, TooLate, WrongState
from moonfed.fleet.assignment import Assignment, EligibilityCheck
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.fleet.messages import (
    read_installed,
    read_scores,
    write_assignment,
    write_check,
    write_evaluation,
    write_run_ended,
    write_target,
)
from moonfed.fleet.target_release import InstalledRelease, TargetRelease
from moonfed.printable import printable
from moonfed.transport.client import from_message
from moonfed.v1 import blob_pb2, fleet_pb2
from moonfed.version import CONTRACT_VERSION, RELEASE

# Messages in


def evaluation_report(device: str, message: fleet_pb2.ReportEvaluationRequest) -> EvaluationReport:
    """Convert a device's answer; InvalidInput if it has neither scores nor a reason."""
    if message.WhichOneof("answer") is None:
        raise InvalidInput("answer is missing; it must be scores, or the reason why there are none")
    return EvaluationReport(
        device=device,
        run=message.run,
        round=message.round,
        number=message.number,
        model=message.model,
        scores=read_scores(message.scores) if message.HasField("scores") else None,
        reason=printable(message.declined[:MAX_REASON]),
    )


def device_info(device: str, request: fleet_pb2.ConnectRequest, address: str = "") -> DeviceInfo:
    """Convert a device's description of itself; `address`: from which it calls."""
    plans = tuple(request.plan_interfaces)
    return DeviceInfo(
        device=device,
        contract_version=request.contract_version,
        plan_interfaces=plans,
        platform={**request.platform, **({"plans": ", ".join(plans)} if plans else {})},
        samples=request.samples,
        runs=tuple(request.runs),
        labels=dict(request.labels),
        encodings=tuple(request.encodings),
        fingerprint=request.fingerprint,
        release=request.release,
        instance=request.instance,
        address=address,
    )


def installed(request: fleet_pb2.ConnectRequest) -> tuple[InstalledRelease, ...]:
    """Convert the releases that a device predicts with."""
    return tuple(read_installed(release) for release in request.installed)


def attempt(
    message: fleet_pb2.ReportRequest | fleet_pb2.DeclineRequest | fleet_pb2.SubmitHeader,
) -> AttemptId:
    """Convert the run, round and attempt that a message is about."""
    return AttemptId(run=message.run, round=message.round, attempt=message.attempt)


def update_header(device: str, message: fleet_pb2.SubmitHeader) -> UpdateHeader:
    """Convert the header of a submitted update."""
    return UpdateHeader(
        id=attempt(message),
        device=device,
        blobs={role: from_message(blob) for role, blob in message.blobs.items()},
        samples=message.samples,
        steps=message.steps,
        metrics=dict(message.metrics),
        encoding=parse_encoding("encoding", message.encoding),
        personal_lost=message.personal_lost,
    )


# Messages out


def welcome() -> fleet_pb2.ConnectReply:
    """Build the first message of a session."""
    return fleet_pb2.ConnectReply(welcome=fleet_pb2.Welcome(contract_version=CONTRACT_VERSION, coordinator=RELEASE))


def connect_reply(message: Message) -> fleet_pb2.ConnectReply:
    """Convert a later message of a session."""
    if isinstance(message, Assignment):
        return fleet_pb2.ConnectReply(assignment=write_assignment(message))
    if isinstance(message, EligibilityCheck):
        return fleet_pb2.ConnectReply(check=write_check(message))
    if isinstance(message, EvaluationTask):
        return fleet_pb2.ConnectReply(evaluation=write_evaluation(message))
    if isinstance(message, TargetRelease):
        return fleet_pb2.ConnectReply(target=write_target(message))
    return fleet_pb2.ConnectReply(ended=write_run_ended(message))


def report_reply(problem: WrongState | None) -> fleet_pb2.ReportReply:
    """Build the reply to a report: whether to stop, why, and when to return."""
    seconds = problem.retry_after_seconds if isinstance(problem, TooLate) else 0.0
    return fleet_pb2.ReportReply(stop=problem is not None, reason=str(problem or ""), retry_after_seconds=seconds)


def resume(offsets: Mapping[str, int], part_size: int) -> fleet_pb2.SubmitReply:
    """Build the reply with the stored bytes of each file of an update, by sha256, and the largest size of a part."""
    return fleet_pb2.SubmitReply(resume=blob_pb2.Resume(offsets=dict(offsets), part_size=part_size))


def receipt(report: DeviceReport) -> fleet_pb2.SubmitReply:
    """Convert the receipt of an update."""
    return fleet_pb2.SubmitReply(
        receipt=fleet_pb2.Receipt(
            run=report.id.run,
            round=report.id.round,
            attempt=report.id.attempt,
            sha256={role: ref.sha256 for role, ref in report.blobs.items()},
        )
    )
