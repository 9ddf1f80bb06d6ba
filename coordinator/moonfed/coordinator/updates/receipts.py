"""The events that devices' reports cause: for the state machine, and for subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from moonfed.coordinator.records import DeviceReport, EventKind, Outcome
from moonfed.coordinator.rounds.events import Declined, UpdateAccepted, UpdateRejected
from moonfed.coordinator.rounds.state import OpenRound

Answered = UpdateAccepted | UpdateRejected | Declined
KINDS: Mapping[Outcome, EventKind] = {
    "accepted": "update_received",
    "rejected": "update_rejected",
    "declined": "device_declined",
}


def event_of(report: DeviceReport) -> Answered:
    """Convert a report to an event of the state machine."""
    round_ = report.id.round
    attempt = report.id.attempt
    device = report.device
    match report.outcome:
        case "accepted":
            return UpdateAccepted(round=round_, attempt=attempt, device=device, samples=report.samples)
        case "rejected":
            return UpdateRejected(round=round_, attempt=attempt, device=device)
        case "declined":
            return Declined(round=round_, attempt=attempt, device=device)
    assert_never(report.outcome)


def is_news(current: OpenRound, report: DeviceReport) -> bool:
    """Return whether the open round does not yet know a report, which another replica recorded."""
    known = {"accepted": current.reported, "rejected": current.rejected, "declined": current.declined}
    return report.device not in known[report.outcome]
