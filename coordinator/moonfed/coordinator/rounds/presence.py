"""Presence of devices: changes of a run's state that both state machines share."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from moonfed.coordinator.rounds.state import State

StateType = TypeVar("StateType", bound=State)


def with_online(state: StateType, device: str) -> StateType:
    """Return the state after an eligible device came online."""
    return replace(state, online=state.online | {device}, ineligible=_without(state, device))


def with_offline(state: StateType, device: str, ineligible: str = "") -> StateType:
    """Return the state after a device went offline, or was found ineligible for that reason."""
    known = _without(state, device) | ({device: ineligible} if ineligible else {})
    return replace(state, online=state.online - {device}, ineligible=known)


def waits_in_vain(state: State) -> bool:
    """Return True if devices are online, and every one of them is ineligible."""
    return bool(state.ineligible) and not state.online and not state.paused


def _without(state: State, device: str) -> dict[str, str]:
    return {other: reason for other, reason in state.ineligible.items() if other != device}
