"""Makes durable what a run's commands decide, before anybody sees it."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.records import Answer, AttemptId
from coordinator.rounds.events import Abandon, Command, Discard, End, InAttempt, Join, Open, Reduce
from coordinator.storage.store import Store

REASONS_SHOWN = 3  # the log has them all


def keep(store: Store, run: str, command: Command) -> None:
    """Records a command's outcome. Blocking."""
    match command:
        case Open():
            store.open_round(attempt_id(run, command), command.cohort)
        case Join():
            store.join_round(attempt_id(run, command), command.device)
        case Reduce() if not command.bases:  # from here on this round gives no receipts: all that it gave are reduced
            store.begin_reducing(attempt_id(run, command))
        case Abandon():
            attempt = attempt_id(run, command)
            store.abandon_round(attempt, with_reasons(command.reason, store.answers(attempt)))
        case Discard():
            store.put_answer(discarded(run, command))
        case End():
            store.end_run(run, command.status)


def with_reasons(why: str, answers: Sequence[Answer]) -> str:
    """Why a round was abandoned, with the first of the reasons that devices gave or were given."""
    given = [f"{answer.device}: {answer.reason}" for answer in answers if answer.reason]
    rest = f"; and {len(given) - REASONS_SHOWN} more" if len(given) > REASONS_SHOWN else ""
    return "; ".join([why, *given[:REASONS_SHOWN]]) + rest


def discarded(run: str, command: Discard) -> Answer:
    """The answer that stands in place of a device's damaged one."""
    reason = "it was damaged on the coordinator's disk"
    return Answer(id=attempt_id(run, command), device=command.device, outcome="refused", reason=reason)


def attempt_id(run: str, item: InAttempt) -> AttemptId:
    """The attempt that an event or a command is about."""
    return AttemptId(run=run, round=item.round, attempt=item.attempt)
