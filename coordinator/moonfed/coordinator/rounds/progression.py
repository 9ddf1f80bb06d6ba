"""The state machine's next actions after an event: replace devices, close the round, open the next one, or end."""

from __future__ import annotations

from dataclasses import replace

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.cohort import draw_cohort, draw_order
from moonfed.coordinator.rounds.events import (
    STOP_REASONS,
    Abandon,
    Assign,
    Command,
    DeadlinePassed,
    End,
    Open,
    Reduce,
    Replace,
    RetryDue,
    StartTimer,
    StopRequested,
    WaitTimedOut,
)
from moonfed.coordinator.rounds.presence import StateType, waits_in_vain
from moonfed.coordinator.rounds.sizes import devices_needed, updates_required, updates_wanted
from moonfed.coordinator.rounds.state import NOBODY, NOTHING, Attempts, OpenRound, State
from moonfed.coordinator.rounds.status_text import shortage

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 60.0
Step = tuple[State, tuple[Command, ...]]


def retry_seconds(failures: int) -> float:
    """Return the capped exponential backoff after that many failed attempts."""
    return min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 16))


def proceed(settings: RunSettings, draw: Draw, state: State) -> Step:
    """Perform the state's next actions."""
    if state.open:
        return _proceed_in_round(settings, draw, state, state.open)
    if state.committed >= settings.rounds:
        return replace(state, status="finished"), (End(status="finished"),)
    if state.stopping:
        return replace(state, status=state.stopping), (End(status=state.stopping),)
    if state.attempt > settings.max_attempts:
        return replace(state, status="failed", reusable=NOTHING), (End(status="failed"),)
    if state.paused or state.backing_off:
        return state, ()
    if len(state.online | state.reusable.keys()) < devices_needed(settings):
        return limit_wait(settings, state)
    state, commands = _open(settings, draw, state)
    state, more = proceed(settings, draw, state)
    return state, commands + more


def _proceed_in_round(settings: RunSettings, draw: Draw, state: State, current: OpenRound) -> Step:
    if current.reducing:
        return state, ()
    commands: tuple[Command, ...] = ()
    if not _is_complete(settings, current):
        current, commands = _with_replacements(settings, draw, state, current)
        state = replace(state, open=current)
    if current.waits and not _is_complete(settings, current):
        return state, commands
    state, more = _close(settings, state, current)
    state, rest = (state, ()) if state.open else proceed(settings, draw, state)
    return state, commands + more + rest


def _with_replacements(
    settings: RunSettings, draw: Draw, state: State, current: OpenRound
) -> tuple[OpenRound, tuple[Command, ...]]:
    """Fill the round's vacancies with idle devices, in the order of the draw."""
    replaces = current.vacancies and not state.paused and not settings.private
    idle = state.online.difference(current.cohort) if replaces else NOBODY
    if not idle:
        return current, ()
    round_, attempt = current.round, current.attempt
    order = draw_order(settings, draw, round_, attempt, idle, state.samples)
    joined = tuple(sorted(order[: current.vacancies]))
    cohort, replacements = tuple(sorted((*current.cohort, *joined))), current.replacements.union(joined)
    assigns = (Assign(round=round_, attempt=attempt, device=device) for device in joined)
    current = replace(current, cohort=cohort, replacements=replacements)
    return current, (Replace(round=round_, attempt=attempt, devices=joined), *assigns)


def limit_wait(settings: RunSettings, state: StateType) -> tuple[StateType, tuple[Command, ...]]:
    """Limit the wait to a round's deadline if all online devices are ineligible."""
    if state.wait_limited or not waits_in_vain(state):
        return state, ()
    timeout = WaitTimedOut(round=state.committed + 1, attempt=state.attempt)
    return replace(state, wait_limited=True), (StartTimer(seconds=settings.deadline, event=timeout),)


def _open(settings: RunSettings, draw: Draw, state: State) -> Step:
    round_, attempt = state.committed + 1, state.attempt
    cohort = draw_cohort(settings, draw, round_, attempt, state.online, state.samples, state.reusable)
    reused = {device: state.reusable[device] for device in cohort if device in state.reusable}
    overdue = DeadlinePassed(round=round_, attempt=attempt)
    commands: list[Command] = [Open(round=round_, attempt=attempt, cohort=cohort, reused=reused)]
    commands.append(StartTimer(seconds=settings.deadline, event=overdue))
    commands += [Assign(round=round_, attempt=attempt, device=device) for device in cohort if device not in reused]
    current = OpenRound(round=round_, attempt=attempt, cohort=cohort, reused=reused, reported=frozenset(reused))
    return replace(state, open=current, reusable=NOTHING, wait_limited=False), tuple(commands)


def _is_complete(settings: RunSettings, current: OpenRound) -> bool:
    """Return True if the round can close, whatever devices are still training."""
    enough = not settings.private and len(current.reported) >= updates_wanted(settings, current.drawn)
    return current.overdue or enough


def _close(settings: RunSettings, state: State, current: OpenRound) -> Step:
    needed = updates_required(settings, current.drawn)
    if len(current.reported) < needed:
        counted = f"only {len(current.reported)} of {needed} required updates counted when the round closed"
        reason = f"{counted}; {shortage(current)}"
        reusable = NOTHING if settings.private else current.attempts  # each attempt is drawn afresh
        return abandoned(settings, state, current, reason, reusable=reusable)
    return replace(state, open=replace(current, reducing=True)), (reduction(current),)


def reduction(current: OpenRound) -> Reduce:
    """Return the command to reduce the round's updates."""
    devices = tuple(sorted(current.reported))
    reused = {device: current.reused[device] for device in devices if device in current.reused}
    return Reduce(round=current.round, attempt=current.attempt, devices=devices, reused=reused)


def abandoned(
    settings: RunSettings, state: State, current: OpenRound, reason: str, reusable: Attempts = NOTHING
) -> Step:
    """Abandon the attempt; the next one, if there is one, may count the updates in `reusable`."""
    attempt = current.attempt + 1
    is_last = attempt > settings.max_attempts or state.stopping
    kept = NOTHING if is_last else reusable
    state = replace(state, open=None, attempt=attempt, reusable=kept, wait_limited=False, failures=0)
    commands: tuple[Command, ...] = (_abandon(current, reason, kept),)
    if is_last:
        return state, commands
    retry = RetryDue(round=current.round, attempt=attempt)
    timer = StartTimer(seconds=retry_seconds(current.attempt), event=retry)
    return replace(state, backing_off=True), (*commands, timer)


def stopped(state: State, request: StopRequested) -> Step:
    """Return the state after a request to stop; a round that is being reduced is still committed."""
    state = replace(state, stopping=request.status)
    being_reduced = state.open and state.open.reducing and not state.reduction_error
    if state.open is None or being_reduced:
        return state, ()
    abandon = _abandon(state.open, STOP_REASONS[request.status])
    return replace(state, open=None, reduction_error=""), (abandon,)


def _abandon(current: OpenRound, reason: str, reusable: Attempts = NOTHING) -> Abandon:
    return Abandon(
        round=current.round, attempt=current.attempt, missing=current.missing, reason=reason, reusable=reusable
    )
