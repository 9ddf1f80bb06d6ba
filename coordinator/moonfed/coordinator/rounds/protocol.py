"""The two kinds of rounds, synchronous and asynchronous, and the one place where a run's settings choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from moonfed.coordinator.rounds import fedbuff, fedbuff_state, status_text, synchronous
from moonfed.coordinator.rounds.events import Event
from moonfed.coordinator.rounds.settings import Settings
from moonfed.coordinator.rounds.state import State


class Waiting(Protocol):
    """See `sentences.waiting`."""

    def __call__(
        self, settings: Settings, state: State, misfits: Mapping[str, str] = ..., silence: Mapping[str, float] = ...
    ) -> str:
        """The sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A state machine, and what its states mean."""

    first: State
    step: Callable[[Settings, State, Event], synchronous.Step]
    objection: Callable[[Settings, State, int, int, str], str | None]
    waiting: Waiting
    needed_attempts: Callable[[Settings, State], frozenset[tuple[int, int]]]  # whose updates may come or lie there


def _needed_attempts(_: Settings, state: State) -> frozenset[tuple[int, int]]:
    return frozenset({(state.open.round, state.open.attempt)} if state.open else ())


def _objection(_: Settings, state: State, round_: int, attempt: int, device: str) -> str | None:
    return status_text.objection(state, round_, attempt, device)


SYNCHRONOUS = Kind(
    first=State(),
    step=synchronous.step,
    objection=_objection,
    waiting=status_text.waiting,
    needed_attempts=_needed_attempts,
)
ASYNCHRONOUS = Kind(
    first=fedbuff_state.BufferedState(),
    step=fedbuff.step,
    objection=fedbuff_state.objection,
    waiting=fedbuff_state.waiting,
    needed_attempts=fedbuff_state.needed_attempts,
)


def kind_of(settings: Settings) -> Kind:
    """The kind of a run's rounds."""
    return ASYNCHRONOUS if settings.asynchronous else SYNCHRONOUS
