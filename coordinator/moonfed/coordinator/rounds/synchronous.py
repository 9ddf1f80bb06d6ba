"""The state machine of one run: an event goes in, the new state and commands come out; no clock, no I/O, no randomness.

A round opens when enough devices are online, with a cohort drawn from them, over-selection included. It closes as soon
as it has the cohort's number of updates, or every device has reported, been rejected, declined or been lost, or at the
deadline. With a quorum of updates it is reduced; a reduction that fails for a transient reason is retried. Without a
quorum it is abandoned and retried under the same number as the next attempt.
"""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.rounds.cohort import draw_cohort
from moonfed.coordinator.rounds.events import (
    STOPPED,
    Abandon,
    Assign,
    Command,
    Damaged,
    DeadlinePassed,
    Declined,
    DeviceOffline,
    DeviceOnline,
    Discard,
    End,
    Event,
    Lose,
    Open,
    Progressed,
    Reduce,
    Reduced,
    ReductionFailed,
    Resumed,
    RetryDue,
    Stalled,
    StartTimer,
    StopRequested,
    UpdateAccepted,
    UpdateRejected,
)
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.rounds.status_text import shortage

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 60.0


Step = tuple[State, tuple[Command, ...]]


def step(settings: RunSettings, state: State, event: Event) -> Step:
    """Return the state after an event, and the commands to carry out, in order."""
    if state.status != "running":
        return state, ()
    state, commands = _apply(settings, state, event)
    state, more = _proceed(settings, state)
    return state, commands + more


def retry_seconds(failures: int) -> float:
    """Return the capped exponential backoff after that many failed attempts."""
    return min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 16))


def _apply(settings: RunSettings, state: State, event: Event) -> Step:
    """Apply the event itself. Events of another round or attempt, and repeated ones, have no effect."""
    match event:
        case DeviceOnline(device=device, samples=samples):
            return _connected(_with_samples(state, device, samples), device)
        case DeviceOffline(device=device):
            return replace(state, online=state.online - {device}), ()
        case Resumed(online=online):
            for device, samples in online.items():
                state = _with_samples(state, device, samples)
            return _resumed(settings, replace(state, online=frozenset(online)))
        case StopRequested():
            return _stopped(state)
    current = state.open
    if isinstance(event, RetryDue):
        return _retry_due(state, event)
    if current is None or (current.round, current.attempt) != (event.round, event.attempt):
        return state, ()
    if current.reducing:
        return _reduction_ended(state, current, event)
    return _in_round(state, current, event)


def _retry_due(state: State, event: RetryDue) -> Step:
    if (event.round, event.attempt) != (state.committed + 1, state.attempt):
        return state, ()
    if state.open is None:
        return replace(state, backing_off=False), ()
    return (replace(state, reduction_error=""), (_reduce(state.open),)) if state.reduction_error else (state, ())


def _in_round(state: State, current: OpenRound, event: Event) -> Step:
    match event:
        case DeadlinePassed():
            return replace(state, open=replace(current, overdue=True)), ()
        case UpdateAccepted(device=device) if device in current.cohort and device not in current.declined:
            state = _with_samples(state, device, event.samples)
            settled = replace(_unsettled(current, device), reported=current.reported | {device})
        case UpdateRejected(device=device) if device in current.outstanding or device in current.lost:
            settled = replace(_unsettled(current, device), rejected=current.rejected | {device})
        case Declined(device=device) if device in current.outstanding or device in current.lost:
            settled = replace(_unsettled(current, device), declined=current.declined | {device})
        case Stalled(device=device) if device in current.outstanding:
            lost = replace(current, lost=current.lost | {device})
            return replace(state, open=lost), (Lose(round=current.round, attempt=current.attempt, device=device),)
        case Progressed(device=device) if device in current.lost:
            settled = _unsettled(current, device)
        case _:
            return state, ()
    return replace(state, open=settled), ()


def _unsettled(current: OpenRound, device: str) -> OpenRound:
    """Return the round with that device neither rejected nor lost."""
    return replace(current, rejected=current.rejected - {device}, lost=current.lost - {device})


def _with_samples(state: State, device: str, samples: int) -> State:
    """Record the number of samples a device trains on, if known."""
    if not samples or state.samples.get(device) == samples:
        return state
    return replace(state, samples={**state.samples, device: samples})


def _connected(state: State, device: str) -> Step:
    state = replace(state, online=state.online | {device})
    current = state.open
    closed = current is None or current.reducing or current.overdue
    if current is None or closed or not (device in current.outstanding or device in current.lost):
        return state, ()
    assign = Assign(round=current.round, attempt=current.attempt, device=device)
    return replace(state, open=_unsettled(current, device)), (assign,)


def _resumed(settings: RunSettings, state: State) -> Step:
    """Restart an open round's deadline and reassign its online devices; the others may reconnect."""
    current = state.open
    if current is None:
        return state, ()
    overdue = DeadlinePassed(round=current.round, attempt=current.attempt)
    commands: tuple[Command, ...] = (StartTimer(seconds=settings.deadline_seconds, event=overdue),)
    for device in current.outstanding:
        if device in state.online:
            state, more = _connected(state, device)
            commands += more
    return state, commands


def _stopped(state: State) -> Step:
    state = replace(state, stopping=True)
    being_reduced = state.open and state.open.reducing and not state.reduction_error
    if state.open is None or being_reduced:  # it is still committed
        return state, ()
    abandon = _abandon(state.open, STOPPED)
    return replace(state, open=None, reduction_error=""), (abandon,)


def _reduction_ended(state: State, current: OpenRound, event: Event) -> Step:
    match event:
        case Reduced():
            return replace(state, open=None, committed=current.round, attempt=1, failures=0), ()
        case Damaged(devices=devices):  # the round closes once more, without them
            reported, rejected = current.reported - set(devices), current.rejected | set(devices)
            discards = tuple(Discard(round=current.round, attempt=current.attempt, device=name) for name in devices)
            # The other devices have already been told to stop, so the round waits for no more updates.
            closed = replace(current, reported=reported, rejected=rejected, reducing=False, overdue=True)
            return replace(state, open=closed), discards
        case ReductionFailed(transient=True, reason=reason) if not state.stopping:  # acknowledged updates stay
            failures = state.failures + 1
            retry = RetryDue(round=current.round, attempt=current.attempt)
            timer = StartTimer(seconds=retry_seconds(failures), event=retry)
            return replace(state, reduction_error=reason, failures=failures), (timer,)
        case ReductionFailed(reason=reason):
            return _abandoned(state, current, reason)
    return state, ()


def _proceed(settings: RunSettings, state: State) -> Step:
    """Perform the state's next actions: close the round, open the next one, or end."""
    if state.open:
        if state.open.reducing or not _is_complete(settings, state.open):
            return state, ()
        state, commands = _close(settings, state, state.open)
        state, more = (state, ()) if state.open else _proceed(settings, state)
        return state, commands + more
    if state.committed >= settings.rounds:
        return replace(state, status="finished"), (End(status="finished"),)
    if state.stopping:
        return replace(state, status="stopped"), (End(status="stopped"),)
    if state.backing_off or len(state.online) < settings.devices_needed:
        return state, ()
    return _open(settings, state)


def _open(settings: RunSettings, state: State) -> Step:
    round_, attempt = state.committed + 1, state.attempt
    cohort = draw_cohort(settings, round_, attempt, state.online, state.samples)
    overdue = DeadlinePassed(round=round_, attempt=attempt)
    commands: list[Command] = [Open(round=round_, attempt=attempt, cohort=cohort)]
    commands.append(StartTimer(seconds=settings.deadline_seconds, event=overdue))
    commands += [Assign(round=round_, attempt=attempt, device=device) for device in cohort]
    return replace(state, open=OpenRound(round=round_, attempt=attempt, cohort=cohort)), tuple(commands)


def _is_complete(settings: RunSettings, current: OpenRound) -> bool:
    """Return True if the round can close; over-selected devices may still be training."""
    enough = len(current.reported) >= settings.updates_wanted(len(current.cohort))
    return enough or current.overdue or not current.waits


def _close(settings: RunSettings, state: State, current: OpenRound) -> Step:
    needed = settings.quorum.of(settings.updates_wanted(len(current.cohort)))
    if len(current.reported) < needed:
        return _abandoned(state, current, f"{len(current.reported)} of the {needed} updates needed {shortage(current)}")
    return replace(state, open=replace(current, reducing=True)), (_reduce(current),)


def _reduce(current: OpenRound) -> Reduce:
    return Reduce(round=current.round, attempt=current.attempt, devices=tuple(sorted(current.reported)))


def _abandoned(state: State, current: OpenRound, reason: str) -> Step:
    retry = RetryDue(round=current.round, attempt=current.attempt + 1)
    timer = StartTimer(seconds=retry_seconds(current.attempt), event=retry)
    state = replace(state, open=None, attempt=current.attempt + 1, backing_off=True, failures=0)
    return state, (_abandon(current, reason), timer)


def _abandon(current: OpenRound, reason: str) -> Abandon:
    return Abandon(round=current.round, attempt=current.attempt, missing=current.missing, reason=reason)
