"""The state machine of one run: an event goes in, the new state and commands come out; no clock, no I/O, no randomness.

A round opens when enough devices are online, with a cohort drawn from them, over-selection included; the draw is an
input. A device that is lost, declines, leaves or has its update rejected is replaced by an idle one until the deadline.
The round closes as soon as it has the cohort's number of updates, or there is no device left to wait for, or at the
deadline. With a quorum of updates it is reduced; a reduction that fails for a transient reason is retried. Without a
quorum it is abandoned and retried under the same number as the next attempt, which counts the updates that the
abandoned one had. After too many attempts the run fails.

A run with privacy draws each device by itself, also one that comes online while the round is open. It replaces nobody,
waits for all that it has drawn, and counts no update of an earlier attempt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.cohort import poisson_cohort
from moonfed.coordinator.rounds.events import (
    Assign,
    Command,
    Damaged,
    DeadlinePassed,
    Declined,
    DeviceLeft,
    DeviceOffline,
    DeviceOnline,
    Discard,
    Event,
    Lose,
    Open,
    PauseRequested,
    Progressed,
    Reduced,
    ReductionFailed,
    Replace,
    Resumed,
    ResumeRequested,
    RetryDue,
    SetPaused,
    Stalled,
    StartTimer,
    StopRequested,
    UpdateAccepted,
    UpdateRejected,
    WaitTimedOut,
)
from moonfed.coordinator.rounds.presence import waits_in_vain, with_offline, with_online
from moonfed.coordinator.rounds.progression import Step, abandoned, proceed, reduction, retry_seconds, stopped
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.rounds.status_text import nobody_eligible


def step(settings: RunSettings, draw: Draw, state: State, event: Event) -> Step:
    """Return the state after an event, and the commands to carry out, in order."""
    if state.status != "running":
        return state, ()
    state, commands = _apply(settings, draw, state, event)
    state, more = proceed(settings, draw, state)
    return state, commands + more


def _apply(settings: RunSettings, draw: Draw, state: State, event: Event) -> Step:
    """Apply the event itself. Events of another round or attempt, and repeated ones, have no effect."""
    match event:
        case DeviceOnline(device=device, samples=samples):
            state, commands = _connected(_with_samples(state, device, samples), device)
            return _joined(settings, draw, state, commands, (device,))
        case DeviceOffline(device=device, ineligible=ineligible):
            return with_offline(state, device, ineligible), ()
        case DeviceLeft(device=device):
            return _left(with_offline(state, device), device)
        case Resumed(online=online):
            for device, samples in online.items():
                state = _with_samples(state, device, samples)
            state, commands = _resumed(settings, replace(state, online=frozenset(online)))
            return _joined(settings, draw, state, commands, online)
        case StopRequested():
            return stopped(state, event)
        case PauseRequested() | ResumeRequested():
            paused = isinstance(event, PauseRequested)
            return replace(state, paused=paused), (SetPaused(paused=paused),)
        case RetryDue():
            return _retry_due(state, event)
        case WaitTimedOut():
            return _wait_timed_out(settings, state, event)
    current = state.open
    if current is None or (current.round, current.attempt) != (event.round, event.attempt):
        return state, ()
    if current.reducing:
        return _reduction_ended(settings, state, current, event)
    return _in_round(state, current, event)


def _left(state: State, device: str) -> Step:
    current = state.open
    if current is None or current.reducing or device not in current.outstanding or device in current.left:
        return state, ()
    lose = Lose(round=current.round, attempt=current.attempt, device=device, left=True)
    return replace(state, open=replace(current, left=current.left | {device})), (lose,)


def _wait_timed_out(settings: RunSettings, state: State, event: WaitTimedOut) -> Step:
    """Abandon an attempt that could not even open, while all devices that are online are ineligible."""
    if state.open or (event.round, event.attempt) != (state.committed + 1, state.attempt):
        return state, ()
    if not waits_in_vain(state):  # there was somebody in the meantime
        return replace(state, wait_limited=False), ()
    opened = OpenRound(round=event.round, attempt=event.attempt, cohort=())
    reason = nobody_eligible(settings, state)
    state, commands = abandoned(settings, state, opened, reason, reusable=state.reusable)
    return state, (Open(round=event.round, attempt=event.attempt, cohort=()), *commands)


def _retry_due(state: State, event: RetryDue) -> Step:
    if (event.round, event.attempt) != (state.committed + 1, state.attempt):
        return state, ()
    if state.open is None:
        return replace(state, backing_off=False), ()
    return (replace(state, reduction_error=""), (reduction(state.open),)) if state.reduction_error else (state, ())


def _in_round(state: State, current: OpenRound, event: Event) -> Step:
    match event:
        case DeadlinePassed():
            return replace(state, open=replace(current, overdue=True)), ()
        case UpdateAccepted(device=device) if device in current.cohort and device not in current.declined:
            state = _with_samples(state, device, event.samples)
            settled = replace(_unsettled(current, device), reported=current.reported | {device})
        case UpdateRejected(device=device) if device in current.outstanding or device in current.lost:
            settled = replace(_unsettled(current, device), rejected=current.rejected | {device})
        case Declined(device=device) if device in current.missing and device not in current.declined:
            settled = replace(_unsettled(current, device), declined=current.declined | {device})
        case Stalled(device=device) if device in current.outstanding:
            lost = replace(current, lost=current.lost | {device}, left=current.left - {device})
            return replace(state, open=lost), (Lose(round=current.round, attempt=current.attempt, device=device),)
        case Progressed(device=device) if device in current.lost:
            settled = _unsettled(current, device)
        case _:
            return state, ()
    return replace(state, open=settled), ()


def _unsettled(current: OpenRound, device: str) -> OpenRound:
    """Return the round with that device neither rejected, lost nor gone."""
    return replace(
        current,
        rejected=current.rejected - {device},
        lost=current.lost - {device},
        left=current.left - {device},
    )


def _with_samples(state: State, device: str, samples: int) -> State:
    """Record the number of samples a device trains on, if known."""
    if not samples or state.samples.get(device) == samples:
        return state
    return replace(state, samples={**state.samples, device: samples})


def _connected(state: State, device: str) -> Step:
    state = with_online(state, device)
    current = state.open
    closed = current is None or current.reducing or current.overdue
    if current is None or closed or not (device in current.outstanding or device in current.lost):
        return state, ()
    assign = Assign(round=current.round, attempt=current.attempt, device=device)
    return replace(state, open=_unsettled(current, device)), (assign,)


def _joined(
    settings: RunSettings, draw: Draw, state: State, commands: tuple[Command, ...], devices: Iterable[str]
) -> Step:
    """Let an open round with privacy draw devices that have come online."""
    current = state.open
    if not settings.private or current is None or current.reducing or current.overdue or state.paused:
        return state, commands
    round_, attempt = current.round, current.attempt
    drawn = poisson_cohort(settings, draw, round_, attempt, set(devices).difference(current.cohort))
    if not drawn:
        return state, commands
    cohort, joined = tuple(sorted((*current.cohort, *drawn))), current.replacements.union(drawn)
    assigns = (Assign(round=round_, attempt=attempt, device=device) for device in drawn)
    state = replace(state, open=replace(current, cohort=cohort, replacements=joined))
    return state, (*commands, Replace(round=round_, attempt=attempt, devices=drawn), *assigns)


def _resumed(settings: RunSettings, state: State) -> Step:
    """Restart an open round's deadline and reassign its online devices; the others may reconnect."""
    current = state.open
    if current is None:
        return state, ()
    overdue = DeadlinePassed(round=current.round, attempt=current.attempt)
    commands: tuple[Command, ...] = (StartTimer(seconds=settings.deadline, event=overdue),)
    for device in current.outstanding:
        if device in state.online:
            state, more = _connected(state, device)
            commands += more
    return state, commands


def _reduction_ended(settings: RunSettings, state: State, current: OpenRound, event: Event) -> Step:
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
            return abandoned(settings, state, current, reason)
    return state, ()
