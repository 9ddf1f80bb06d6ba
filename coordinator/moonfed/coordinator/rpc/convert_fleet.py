"""The Fleet service's messages: what devices say and are told."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.assignment import Assignment, RunEnded
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.encodings import parse_encoding
from moonfed.errors import TooLate, WrongState
from moonfed.fleet_messages import write_assignment, write_run_ended
from moonfed.transport import from_message
from moonfed.v1 import blob_pb2, fleet_pb2
from moonfed.version import CONTRACT_VERSION, RELEASE

# Messages in


def introduction(device: str, request: fleet_pb2.ConnectRequest) -> DeviceInfo:
    """What a device says of itself."""
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
    """The run, round and attempt that a message is about."""
    return AttemptId(run=message.run, round=message.round, attempt=message.attempt)


def update_header(device: str, message: fleet_pb2.SubmitHeader) -> UpdateHeader:
    """The header of a submitted update."""
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
    """The first thing that an attending device is told."""
    return fleet_pb2.ConnectReply(welcome=fleet_pb2.Welcome(contract_version=CONTRACT_VERSION, coordinator=RELEASE))


def connect_reply(told: Assignment | RunEnded) -> fleet_pb2.ConnectReply:
    """What an attending device is told after that."""
    if isinstance(told, Assignment):
        return fleet_pb2.ConnectReply(assignment=write_assignment(told))
    return fleet_pb2.ConnectReply(ended=write_run_ended(told))


def report_reply(problem: WrongState | None) -> fleet_pb2.ReportReply:
    """Whether a device is to stop, why, and when it may be wanted again."""
    seconds = problem.retry_after_seconds if isinstance(problem, TooLate) else 0.0
    return fleet_pb2.ReportReply(stop=problem is not None, reason=str(problem or ""), retry_after_seconds=seconds)


def resume(offsets: Mapping[str, int]) -> fleet_pb2.SubmitReply:
    """What is held already of an update."""
    return fleet_pb2.SubmitReply(resume=blob_pb2.Resume(offsets=dict(offsets)))


def receipt(header: UpdateHeader) -> fleet_pb2.SubmitReply:
    """The word that an update counts."""
    return fleet_pb2.SubmitReply(
        receipt=fleet_pb2.Receipt(
            run=header.id.run,
            round=header.id.round,
            attempt=header.id.attempt,
            sha256={role: ref.sha256 for role, ref in header.blobs.items()},
        )
    )
