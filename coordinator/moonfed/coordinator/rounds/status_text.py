"""Status text: a run's state in sentences for operators and devices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.sizes import devices_needed
from moonfed.coordinator.rounds.state import NOBODY, OpenRound, RunStatus, State
from moonfed.formatting import count

NAMES_SHOWN = 8
NOT_KNOWN: Mapping[str, Any] = MappingProxyType({})
CHECKING = "still checking the run"  # in place of the reason why a device is not eligible
REASONS_SHOWN = 3
HAS_ENDED: Mapping[RunStatus, str] = {"finished": "finished", "stopped": "been stopped", "failed": "failed"}
PAUSED = "paused: no round opens until the run is resumed"
SILENCE_SHOWN = 15.0  # seconds without a heartbeat, from which on the status text mentions them


def rejection_reason(state: State, round_: int, attempt: int, device: str) -> str | None:
    """Return why an update for that round from that device is rejected now; None if it is accepted."""
    current = state.open
    if current is None or (current.round, current.attempt) != (round_, attempt):
        return f"round {round_}, attempt {attempt} is not open; {position(state)}"
    if device not in current.cohort:
        return f"device {device!r} is not in the cohort of round {round_}, attempt {attempt}"
    if device in current.reused:
        return f"the update of {device!r} from attempt {current.reused[device]} counts in round {round_}"
    if device in current.declined:
        return f"device {device!r} has declined round {round_}, attempt {attempt}"
    if current.reducing or current.overdue:
        return f"round {round_}, attempt {attempt} has closed; wait for the next assignment"
    return None


def waiting(
    settings: RunSettings,
    state: State,
    ineligible: Mapping[str, str] = NOT_KNOWN,
    silence: Mapping[str, float] = NOT_KNOWN,
) -> str:
    """Describe what the run waits for in one sentence; empty if nothing.

    `ineligible`: online devices that cannot participate, with the reason, such as "without the encoding int8", or
    CHECKING.
    `silence`: seconds since the last heartbeat of each device that the round waits for, if known.
    """
    if state.status != "running":
        return ""
    if state.reduction_error:
        return reduction_failure(state)
    if state.open:
        late = state.open.outstanding
        if state.open.reducing or not late:
            return stops_after(state)
        devices = f"{len(late)} of {count(len(state.open.cohort), 'device')}"
        then = "; no further round opens until the run is resumed" if state.paused else ""
        return f"round {state.open.round} waits for {devices}: {listed(late, absence(state, silence))}{then}"
    if state.paused:
        return PAUSED
    if state.backing_off:
        return f"round {state.committed + 1} was abandoned; attempt {state.attempt} may start within a minute"
    eligible, needed = len(state.online), devices_needed(settings)
    offline = len(state.reusable.keys() - state.online)
    kept = f", {count(offline, 'update')} kept from offline devices" if offline else ""
    checking = [device for device, reason in sorted(ineligible.items()) if reason == CHECKING]
    problems = not_eligible({device: reason for device, reason in ineligible.items() if reason != CHECKING})
    lacking = needed - eligible - offline - len(checking)
    awaited = f"waiting for {count(lacking, 'more device')}: " if lacking > 0 else ""
    if not checking:
        return f"{awaited or 'a round opens soon: '}{eligible} eligible{kept}, {needed} needed{problems}"
    online = f"{len(checking)} online, {CHECKING}: {listed(checking)}"
    return f"{awaited}{online}; {eligible} eligible so far{kept}, {needed} needed{problems}"


def stops_after(state: State) -> str:
    """Describe what a stopping run waits for: a closed round is still committed."""
    return f"stops when round {state.committed + 1} is committed" if state.stopping else ""


def reduction_failure(state: State) -> str:
    """Describe why the closed round has no model yet."""
    return f"the reduction of round {state.committed + 1} failed; retrying within a minute: {state.reduction_error}"


def nobody_eligible(settings: RunSettings, state: State) -> str:
    """Describe why an attempt could not open within the deadline."""
    number = len(state.ineligible)
    devices = "device is" if number == 1 else "devices are"
    return (
        f"no eligible device within {settings.deadline:g} s: {number} {devices} online{not_eligible(state.ineligible)}"
    )


def shortage(current: OpenRound) -> str:
    """Describe why a round lacks updates: the devices that did not deliver, by outcome."""
    groups = {
        "rejected": current.rejected,
        "declined": current.declined,
        "lost": current.lost,
        "left": current.left,
        "late": [device for device in current.outstanding if device not in current.left],
    }
    outcomes = [f"{word}: {listed(sorted(names))}" for word, names in groups.items() if names]
    return "; ".join(outcomes)


def position(state: State) -> str:
    """Describe the run's current round."""
    if state.status != "running":
        return f"the run has {HAS_ENDED[state.status]}"
    number, attempt = state.committed + 1, state.attempt
    return f"the run is at round {number}, attempt {attempt}"


def not_eligible(ineligible: Mapping[str, str]) -> str:
    """List the online devices that are not eligible, by the most frequent reasons."""
    groups: dict[str, list[str]] = {}
    for device, reason in sorted(ineligible.items()):
        groups.setdefault(reason, []).append(device)
    checking = groups.pop(CHECKING, [])
    reasons = sorted(groups, key=lambda reason: (-len(groups[reason]), reason))
    parts = [f"not eligible: {listed(groups[reason])} ({reason})" for reason in reasons[:REASONS_SHOWN]]
    parts += [count(len(reasons) - REASONS_SHOWN, "more reason")] if len(reasons) > REASONS_SHOWN else []
    parts += [f"{CHECKING}: {listed(checking)}"] if checking else []
    return "".join(f"; {part}" for part in parts)


def absence(state: State, silence: Mapping[str, float]) -> Callable[[str], str]:
    """Return a function that annotates a device that the round waits for: offline, or without a recent heartbeat."""
    left = state.open.left if state.open else NOBODY

    def remark(device: str) -> str:
        seconds = silence.get(device, 0.0)
        words = [] if device in state.online else ["has left" if device in left else "offline"]
        words += [f"no heartbeat for {seconds:.0f} s"] if seconds >= SILENCE_SHOWN else []
        return f" ({', '.join(words)})" if words else ""

    return remark


def listed(names: Collection[str], remark: Callable[[str], str] = lambda _: "") -> str:
    """Join the first few names with commas, each followed by its remark."""
    shown = [f"{name}{remark(name)}" for name in list(names)[:NAMES_SHOWN]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
