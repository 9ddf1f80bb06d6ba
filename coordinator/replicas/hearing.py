"""What a run's holder hears of answers that other replicas took: the events that its state machine lacks."""

from __future__ import annotations

from coordinator.records import Answer
from coordinator.rounds.events import Declined, UpdateAccepted, UpdateRefused
from coordinator.rounds.state import OpenRound


def unheard(current: OpenRound, answer: Answer) -> UpdateAccepted | UpdateRefused | Declined | None:
    """The event of an answer that the open round does not know of; None if it does."""
    device, round_, attempt = answer.device, current.round, current.attempt
    if answer.outcome == "accepted" and device not in current.reported:
        return UpdateAccepted(round=round_, attempt=attempt, device=device, samples=answer.samples)
    if answer.outcome == "refused" and device not in current.refused:
        return UpdateRefused(round=round_, attempt=attempt, device=device)
    if answer.outcome == "declined" and device not in current.declined:
        return Declined(round=round_, attempt=attempt, device=device)
    return None
