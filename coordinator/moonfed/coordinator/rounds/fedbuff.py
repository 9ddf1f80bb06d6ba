"""The state machine of an asynchronous run: FedBuff, Nguyen et al., AISTATS 2022, algorithm 1.

Devices train at their own pace. Round t is open until K updates have arrived; they make global model t, whichever
models they started from, unless one is staler than allowed. At the deadline a quorum of K is enough. A device that has
delivered is assigned again once its update is in a model: from the same model it would compute the same update. An
update is identified by the round whose model it started from.
"""

from __future__ import annotations

from dataclasses import replace

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.cohort import draw_order
from moonfed.coordinator.rounds.events import (
    STOP_REASONS,
    Abandon,
    Assign,
    Command,
    Damaged,
    DeadlinePassed,
    Declined,
    DeviceLeft,
    DeviceOffline,
    DeviceOnline,
    Discard,
    End,
    Event,
    InAttempt,
    Join,
    Lose,
    Open,
    PauseRequested,
    Progressed,
    Reduce,
    Reduced,
    ReductionFailed,
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
from moonfed.coordinator.rounds.fedbuff_state import ATTEMPT, FedBuffState, buffered
from moonfed.coordinator.rounds.presence import waits_in_vain, with_offline, with_online
from moonfed.coordinator.rounds.progression import Step, limit_wait, retry_seconds
from moonfed.coordinator.rounds.sizes import cohort_size, devices_needed
from moonfed.coordinator.rounds.state import NOBODY, OpenRound, State
from moonfed.coordinator.rounds.status_text import nobody_eligible

Next = tuple[FedBuffState, tuple[Command, ...]]


def step(settings: RunSettings, draw: Draw, state: State, event: Event) -> Step:
    """Return the state after an event, and the commands to carry out, in order."""
    now = buffered(state)
    if now.status != "running":
        return now, ()
    now, commands = _apply(settings, now, event)
    now, more = _proceed(settings, draw, now)
    return _with_open_round(now), commands + more


def _apply(settings: RunSettings, state: FedBuffState, event: Event) -> Next:
    """Apply the event itself. Events of another round, and repeated ones, have no effect."""
    match event:
        case DeviceOnline(device=device):
            return _connected(state, device)
        case DeviceOffline(device=device, ineligible=ineligible):
            return with_offline(state, device, ineligible), ()
        case DeviceLeft(device=device):
            return _left(with_offline(state, device), device)
        case Resumed(online=online):
            return _resumed(settings, replace(state, online=frozenset(online)))
        case StopRequested():
            return _stopped(state, event)
        case PauseRequested():
            return replace(state, paused=True), (SetPaused(paused=True),)
        case ResumeRequested():
            return _unpaused(settings, state)
        case WaitTimedOut():
            return _wait_timed_out(settings, state), ()
        case UpdateAccepted() | UpdateRejected() | Declined():
            return _answered(state, event), ()
        case Progressed(device=device):  # of any round: an idle device may send no other heartbeat
            returns = device in state.online  # the last heartbeat of one that left may come later
            return (replace(state, lost=state.lost - {device}) if returns else state), ()
    if state.open is None or (event.round, event.attempt) != (state.number, ATTEMPT):
        return state, ()
    return _reduction_ended(settings, state, event) if state.open.reducing else _in_round(settings, state, event)


def _connected(state: FedBuffState, device: str) -> Next:
    """Resume a reconnecting device's pending assignment."""
    reconnects = device not in state.online
    state = replace(with_online(state, device), lost=state.lost - {device})
    if reconnects:  # its reason for declining may be gone
        state = replace(state, declined=state.declined - {device})
    if device not in state.tasks:
        return state, ()
    return state, (Assign(round=state.tasks[device], attempt=ATTEMPT, device=device),)


def _resumed(settings: RunSettings, state: FedBuffState) -> Next:
    if state.open is None:
        return state, ()
    commands: tuple[Command, ...] = (_deadline(settings, state),)
    for device in sorted(state.tasks.keys() & state.online):
        state, more = _connected(state, device)
        commands += more
    return state, commands


def _left(state: FedBuffState, device: str) -> Next:
    if device not in state.working:
        return state, ()
    lose = Lose(round=state.number, attempt=ATTEMPT, device=device, left=True)
    return replace(state, lost=state.lost | {device}), (lose,)


def _unpaused(settings: RunSettings, state: FedBuffState) -> Next:
    """Resume a paused run; its open round gets a new deadline."""
    again = (_deadline(settings, state),) if state.paused and state.open else ()
    return replace(state, paused=False, overdue=state.overdue and not again), (SetPaused(paused=False), *again)


def _wait_timed_out(settings: RunSettings, state: FedBuffState) -> FedBuffState:
    if state.open:
        return state
    state = replace(state, wait_limited=False)
    return _fruitless(state, nobody_eligible(settings, state)) if waits_in_vain(state) else state


def _fruitless(state: FedBuffState, setback: str) -> FedBuffState:
    """Count an attempt that made no model."""
    return replace(state, fruitless=state.fruitless + 1, setback=setback)


def _stopped(state: FedBuffState, request: StopRequested) -> Next:
    state = replace(state, stopping=request.status)
    if state.open is None or state.open.reducing:  # a round that is being reduced is still committed
        return state, ()
    return replace(state, open=None, buffer={}), (_abandon(state, STOP_REASONS[state.stopping]),)


def _abandon(state: FedBuffState, reason: str) -> Abandon:
    shown = _with_open_round(state).open
    return Abandon(round=state.number, attempt=ATTEMPT, missing=shown.cohort if shown else (), reason=reason)


def _answered(state: FedBuffState, event: UpdateAccepted | UpdateRejected | Declined) -> FedBuffState:
    device = event.device
    if state.open is None or event.attempt != ATTEMPT or state.tasks.get(device) != event.round:
        return state
    tasks = {name: begun for name, begun in state.tasks.items() if name != device}
    state = replace(state, tasks=tasks, lost=state.lost - {device})
    match event:
        case UpdateAccepted():
            return replace(state, buffer={**state.buffer, device: event.round})
        case UpdateRejected():
            return replace(state, rejected=state.rejected | {device})
        case Declined():
            return replace(state, declined=state.declined | {device})


def _in_round(settings: RunSettings, state: FedBuffState, event: InAttempt) -> Next:
    match event:
        case DeadlinePassed():
            return _deadline_passed(settings, replace(state, overdue=True))
        case RetryDue():
            return replace(state, reduction_error=""), ()
        case Stalled(device=device) if device in state.working:
            return replace(state, lost=state.lost | {device}), (
                Lose(round=state.number, attempt=ATTEMPT, device=device),
            )
    return state, ()


def _deadline_passed(settings: RunSettings, state: FedBuffState) -> Next:
    """Count a deadline without a quorum, unless no device could have delivered; another one begins."""
    needed = settings.quorum.of(settings.asynchronous)
    if len(state.buffer) >= needed and not state.reduction_error:
        return state, ()
    if len(state.buffer) < needed and not state.paused and (state.online or state.ineligible):
        state = _fruitless(state, f"only {len(state.buffer)} of {needed} required updates counted by the deadline")
    return state, (_deadline(settings, state),)


def _reduction_ended(settings: RunSettings, state: FedBuffState, event: InAttempt) -> Next:
    match event:
        case Reduced():
            return replace(state, open=None, committed=state.number, closing={}, failures=0, fruitless=0), ()
        case Damaged(devices=devices):  # drop those; the others wait for more
            whole = {name: begun for name, begun in state.closing.items() if name not in devices}
            discards = tuple(Discard(round=state.closing[name], attempt=ATTEMPT, device=name) for name in devices)
            state = replace(state, rejected=state.rejected | set(devices), buffer={**whole, **state.buffer})
            again = (_deadline(settings, state),) if state.overdue else ()
            return _reopened(state), (*discards, *again)
        case ReductionFailed(reason=reason, transient=transient):  # acknowledged updates stay
            failures = state.failures + 1
            state = state if transient else _fruitless(state, reason)
            retry = StartTimer(seconds=retry_seconds(failures), event=RetryDue(**_attempt(state)))
            state = replace(state, buffer={**state.closing, **state.buffer}, reduction_error=reason, failures=failures)
            return _reopened(state), (retry,)
        case DeadlinePassed():
            return replace(state, overdue=True), ()
        case Stalled():
            return _in_round(settings, state, event)
    return state, ()


def _reopened(state: FedBuffState) -> FedBuffState:
    return replace(state, closing={}, open=replace(state.open, reducing=False) if state.open else None)


def _proceed(settings: RunSettings, draw: Draw, state: FedBuffState) -> Next:
    """Perform the state's next actions: open the next round, assign work, close the round, or end."""
    commands: tuple[Command, ...] = ()
    if state.open is None:
        if state.committed >= settings.rounds:
            return replace(state, status="finished"), (End(status="finished"),)
        if state.stopping:
            return replace(state, status=state.stopping), (*_abandon_buffer(state), End(status=state.stopping))
        if state.fruitless >= settings.max_attempts:
            opened = Open(round=state.number, attempt=ATTEMPT, cohort=())
            return _failed(state, opened, _abandon(state, state.setback))
        if state.committed == 0 and len(state.online) < devices_needed(settings):
            return limit_wait(settings, state)  # once a round was open, some device is always training
        if state.paused and not (state.tasks or state.buffer):
            return state, ()  # nobody is at work whose update a round could count
        state, commands = _open(settings, draw, state)
    elif state.fruitless >= settings.max_attempts and not state.open.reducing:
        return _failed(state, _abandon(state, state.setback))
    elif not state.open.reducing:
        state, commands = _assign_idle(settings, draw, state)
    state, more = _close(settings, state)
    return state, commands + more


def _failed(state: FedBuffState, *commands: Command) -> Next:
    """End a run that makes no models; its updates are abandoned with the round, whose reason is recorded."""
    return replace(state, open=None, buffer={}, status="failed"), (*commands, End(status="failed"))


def _abandon_buffer(state: FedBuffState) -> tuple[Command, ...]:
    """Record the round that the buffered updates were acknowledged for, with the reason why it was abandoned."""
    if not state.buffer:
        return ()
    return Open(round=state.number, attempt=ATTEMPT, cohort=()), _abandon(state, STOP_REASONS[state.stopping])


def _open(settings: RunSettings, draw: Draw, state: FedBuffState) -> Next:
    oldest = state.number - settings.max_staleness
    # Updates from older models would be rejected.
    tasks = {device: begun for device, begun in state.tasks.items() if begun >= oldest}
    state = replace(
        state,
        open=OpenRound(round=state.number, attempt=ATTEMPT, cohort=()),
        tasks=tasks,
        rejected=NOBODY,
        declined=NOBODY,
        overdue=False,
        reduction_error="",
    )
    before = state.tasks
    state, commands = _assign_idle(settings, draw, state)
    cohort = tuple(sorted(state.tasks.keys() - before.keys()))
    assigns = (command for command in commands if isinstance(command, Assign))
    return state, (Open(round=state.number, attempt=ATTEMPT, cohort=cohort), _deadline(settings, state), *assigns)


def _assign_idle(settings: RunSettings, draw: Draw, state: FedBuffState) -> Next:
    """Assign work to idle devices until the cohort's number are training, unless the run is paused."""
    if state.paused:
        return state, ()
    engaged = {*state.tasks, *state.buffer, *state.closing, *state.rejected, *state.declined, *state.lost}
    free = cohort_size(settings, len(state.online)) - len(state.working)
    order = draw_order(settings, draw, state.number, ATTEMPT, state.online - engaged, {})
    drawn = sorted(order[: max(0, free)])
    commands: list[Command] = []
    for device in drawn:
        commands += [Join(**_attempt(state), device=device), Assign(**_attempt(state), device=device)]
    return replace(state, tasks={**state.tasks, **dict.fromkeys(drawn, state.number)}), tuple(commands)


def _close(settings: RunSettings, state: FedBuffState) -> Next:
    wanted = settings.quorum.of(settings.asynchronous) if state.overdue else settings.asynchronous
    if state.open is None or state.open.reducing or state.reduction_error or len(state.buffer) < wanted:
        return state, ()
    closing = dict(sorted(state.buffer.items()))
    reduce = Reduce(round=state.number, attempt=ATTEMPT, devices=tuple(closing), bases=closing)
    return replace(state, open=replace(state.open, reducing=True), closing=closing, buffer={}), (reduce,)


def _deadline(settings: RunSettings, state: FedBuffState) -> StartTimer:
    return StartTimer(seconds=settings.deadline, event=DeadlinePassed(**_attempt(state)))


def _attempt(state: FedBuffState) -> dict[str, int]:
    return {"round": state.number, "attempt": ATTEMPT}


def _with_open_round(state: FedBuffState) -> FedBuffState:
    """Fill in the open round for readers: devices training on earlier models are in its cohort, too."""
    if state.open is None:
        return state
    reported = {*state.buffer, *state.closing}
    cohort = {*state.tasks, *reported, *state.rejected, *state.declined, *state.lost}
    shown = replace(
        state.open,
        cohort=tuple(sorted(cohort)),
        reported=frozenset(reported),
        rejected=state.rejected,
        declined=state.declined,
        lost=state.lost,
        overdue=state.overdue,
    )
    return replace(state, open=shown)
