"""The events that devices' reports cause: for the state machine, and for subscribers."""

from __future__ import annotations

from typing import TypedDict, assert_never

from moonfed.control import events
from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.rounds.events import Declined, UpdateAccepted, UpdateRejected
from moonfed.coordinator.rounds.state import OpenRound


class _About(TypedDict):
    round: int
    attempt: int
    device: str
    pending: int


Answered = UpdateAccepted | UpdateRejected | Declined


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


def shown_event(report: DeviceReport, pending: int) -> events.RunEvent:
    """Return a report as operators see it; `pending`: devices that the round still waits for."""
    about: _About = {
        "round": report.id.round,
        "attempt": report.id.attempt,
        "device": report.device,
        "pending": pending,
    }
    match report.outcome:
        case "accepted":
            return events.UpdateReceived(**about)
        case "rejected":
            return events.UpdateRejected(**about, reason=report.reason)
        case "declined":
            return events.DeviceDeclined(**about, reason=report.reason)
    assert_never(report.outcome)


def is_news(current: OpenRound, report: DeviceReport) -> bool:
    """Return whether the open round does not yet know a report, which another replica recorded."""
    known = {"accepted": current.reported, "rejected": current.rejected, "declined": current.declined}
    return report.device not in known[report.outcome]
