"""The devices of a round that delivered no update, with the outcome and the reason that operators see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from moonfed.coordinator.rounds.state import NOBODY, Names, State


def undelivered(
    state: State, trained: Callable[[str], float], lost: Names = NOBODY
) -> dict[str, tuple[Literal["lost", "missing"], str]]:
    """Return outcome and reason of the open round's devices that sent no report.

    `trained`: the fraction of the training that a device has reported. `lost`: devices lost since that state.
    """
    current = state.open
    if current is None:
        return {}
    found: dict[str, tuple[Literal["lost", "missing"], str]] = {}
    for device in current.cohort:
        if device in current.lost or device in lost:
            found[device] = "lost", "no heartbeat within the timeout, or revoked"
        elif device in current.left:
            found[device] = "lost", "it left"
        elif device not in current.reported | current.rejected | current.declined:
            online = device in state.online
            found[device] = "missing", f"{trained(device):.0%} trained when the round closed" if online else "offline"
    return found
