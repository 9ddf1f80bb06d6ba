"""Conversion of the Fleet service's messages."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.assignment import Assignment, RunEnded
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.records import AttemptId, DeviceReport
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.encodings import parse_encoding
from moonfed.errors import TooLate, WrongState
from moonfed.fleet_messages import write_assignment, write_run_ended
from moonfed.transport import from_message
from moonfed.v1 import blob_pb2, fleet_pb2
from moonfed.version import CONTRACT_VERSION, RELEASE

# Messages in


def device_info(device: str, request: fleet_pb2.ConnectRequest) -> DeviceInfo:
    """Convert a device's description of itself."""
    return DeviceInfo(
        device=device,
        contract_version=request.contract_version,
        plan_interfaces=tuple(request.plan_interfaces),
        platform=dict(request.platform),
        samples=request.samples,
        runs=tuple(request.runs),
        labels=dict(request.labels),
        encodings=tuple(request.encodings),
    )


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
    )


# Messages out


def welcome() -> fleet_pb2.ConnectReply:
    """Build the first message of a session."""
    return fleet_pb2.ConnectReply(welcome=fleet_pb2.Welcome(contract_version=CONTRACT_VERSION, coordinator=RELEASE))


def connect_reply(message: Assignment | RunEnded) -> fleet_pb2.ConnectReply:
    """Convert a later message of a session."""
    if isinstance(message, Assignment):
        return fleet_pb2.ConnectReply(assignment=write_assignment(message))
    return fleet_pb2.ConnectReply(ended=write_run_ended(message))


def report_reply(problem: WrongState | None) -> fleet_pb2.ReportReply:
    """Tell a device whether to stop, why, and when to return."""
    seconds = problem.retry_after_seconds if isinstance(problem, TooLate) else 0.0
    return fleet_pb2.ReportReply(stop=problem is not None, reason=str(problem or ""), retry_after_seconds=seconds)


def resume(offsets: Mapping[str, int], part_size: int) -> fleet_pb2.SubmitReply:
    """Tell a device how many bytes of each file of its update are stored, by sha256, and how many a part may have."""
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
