"""The two kinds of rounds, synchronous and asynchronous, and the one place where a run's settings choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from moonfed.coordinator.rounds import fedbuff, fedbuff_state, status_text, synchronous
from moonfed.coordinator.rounds.events import Event
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.rounds.state import State


class Waiting(Protocol):
    """See `sentences.waiting`."""

    def __call__(
        self, settings: RunSettings, state: State, misfits: Mapping[str, str] = ..., silence: Mapping[str, float] = ...
    ) -> str:
        """The sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProtocol:
    """A state machine, and what its states mean."""

    first: State
    step: Callable[[RunSettings, State, Event], synchronous.Step]
    objection: Callable[[RunSettings, State, int, int, str], str | None]
    waiting: Waiting
    needed_attempts: Callable[[RunSettings, State], frozenset[tuple[int, int]]]  # whose updates may come or lie there


def _needed_attempts(_: RunSettings, state: State) -> frozenset[tuple[int, int]]:
    return frozenset({(state.open.round, state.open.attempt)} if state.open else ())


def _objection(_: RunSettings, state: State, round_: int, attempt: int, device: str) -> str | None:
    return status_text.objection(state, round_, attempt, device)


SYNCHRONOUS = RoundProtocol(
    first=State(),
    step=synchronous.step,
    objection=_objection,
    waiting=status_text.waiting,
    needed_attempts=_needed_attempts,
)
ASYNCHRONOUS = RoundProtocol(
    first=fedbuff_state.FedBuffState(),
    step=fedbuff.step,
    objection=fedbuff_state.objection,
    waiting=fedbuff_state.waiting,
    needed_attempts=fedbuff_state.needed_attempts,
)


def round_protocol(settings: RunSettings) -> RoundProtocol:
    """The kind of a run's rounds."""
    return ASYNCHRONOUS if settings.asynchronous else SYNCHRONOUS
