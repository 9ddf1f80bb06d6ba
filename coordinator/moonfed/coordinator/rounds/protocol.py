"""The round protocols, synchronous and FedBuff; `round_protocol` is the one place where a run's settings choose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from moonfed.bundle.manifest import Manifest
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.staleness import require_bufferable
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds import fedbuff, fedbuff_state, status_text, synchronous
from moonfed.coordinator.rounds.events import Event
from moonfed.coordinator.rounds.progression import Step
from moonfed.coordinator.rounds.state import State


class RoundProtocol(ABC):
    """A state machine, the meaning of its states, and the properties of the protocol that the coordinator needs."""

    first: ClassVar[State]
    leaseholder_only: ClassVar[bool]  # True: only devices connected to the run's lease holder participate
    reports_outlive_rounds: ClassVar[bool]  # True: a report may be recorded after the round that it started from closed
    can_roll_back: ClassVar[bool]  # True: an earlier global state can replace a damaged one

    @abstractmethod
    def step(self, settings: RunSettings, draw: Draw, state: State, event: Event) -> Step:
        """Return the state after an event, and the commands to carry out, in order."""

    @abstractmethod
    def rejection_reason(
        self, settings: RunSettings, state: State, round_: int, attempt: int, device: str
    ) -> str | None:
        """Return why an update of that attempt from the device is rejected now; None if it is accepted."""

    @abstractmethod
    def waiting(
        self,
        settings: RunSettings,
        state: State,
        ineligible: Mapping[str, str] = status_text.NOT_KNOWN,
        silence: Mapping[str, float] = status_text.NOT_KNOWN,
    ) -> str:
        """Describe what the run waits for: see `status_text.waiting`."""

    @abstractmethod
    def needed_attempts(self, settings: RunSettings, state: State) -> frozenset[tuple[int, int]]:
        """Return the (round, attempt) pairs whose updates may still arrive or are in the spool."""

    @abstractmethod
    def awaited(self, state: State) -> Mapping[str, tuple[int, int]]:
        """Return the devices that may still deliver an update, with its (round, attempt)."""

    @abstractmethod
    def check_manifest(self, manifest: Manifest) -> None:
        """Raise InvalidInput for a bundle whose method this protocol cannot run."""


class SynchronousRounds(RoundProtocol):
    """Rounds whose devices all start from the newest global model."""

    first = State()
    leaseholder_only = False
    reports_outlive_rounds = False
    can_roll_back = True

    def step(self, settings: RunSettings, draw: Draw, state: State, event: Event) -> Step:
        """See `synchronous.step`."""
        return synchronous.step(settings, draw, state, event)

    def rejection_reason(
        self, settings: RunSettings, state: State, round_: int, attempt: int, device: str
    ) -> str | None:
        """See `status_text.rejection_reason`."""
        return status_text.rejection_reason(state, round_, attempt, device)

    def waiting(
        self,
        settings: RunSettings,
        state: State,
        ineligible: Mapping[str, str] = status_text.NOT_KNOWN,
        silence: Mapping[str, float] = status_text.NOT_KNOWN,
    ) -> str:
        """See `status_text.waiting`."""
        return status_text.waiting(settings, state, ineligible, silence)

    def needed_attempts(self, settings: RunSettings, state: State) -> frozenset[tuple[int, int]]:
        """Return the open attempt, if any, and those whose updates it counts, or the next attempt may count."""
        if state.status != "running":
            return frozenset()
        if state.open is None:
            return frozenset((state.committed + 1, attempt) for attempt in state.reusable.values())
        attempts = {state.open.attempt, *state.open.reused.values()}
        return frozenset((state.open.round, attempt) for attempt in attempts)

    def awaited(self, state: State) -> Mapping[str, tuple[int, int]]:
        """Return the devices of the open round that have neither delivered nor declined."""
        current = state.open
        if current is None or current.reducing:
            return {}
        undecided = (device for device in current.missing if device not in current.declined)
        return dict.fromkeys(undecided, (current.round, current.attempt))

    def check_manifest(self, manifest: Manifest) -> None:
        """Accept every method."""


class FedBuffRounds(RoundProtocol):
    """Asynchronous rounds: FedBuff, Nguyen et al., AISTATS 2022."""

    first = fedbuff_state.FedBuffState()
    leaseholder_only = True
    reports_outlive_rounds = True
    can_roll_back = False  # devices are training on many global models

    def step(self, settings: RunSettings, draw: Draw, state: State, event: Event) -> Step:
        """See `fedbuff.step`."""
        return fedbuff.step(settings, draw, state, event)

    def rejection_reason(
        self, settings: RunSettings, state: State, round_: int, attempt: int, device: str
    ) -> str | None:
        """See `fedbuff_state.rejection_reason`."""
        return fedbuff_state.rejection_reason(settings, state, round_, attempt, device)

    def waiting(
        self,
        settings: RunSettings,
        state: State,
        ineligible: Mapping[str, str] = status_text.NOT_KNOWN,
        silence: Mapping[str, float] = status_text.NOT_KNOWN,
    ) -> str:
        """See `fedbuff_state.waiting`."""
        return fedbuff_state.waiting(settings, state, ineligible, silence)

    def needed_attempts(self, settings: RunSettings, state: State) -> frozenset[tuple[int, int]]:
        """See `fedbuff_state.needed_attempts`."""
        return fedbuff_state.needed_attempts(settings, state)

    def awaited(self, state: State) -> Mapping[str, tuple[int, int]]:
        """See `fedbuff_state.awaited`."""
        return fedbuff_state.awaited(state)

    def check_manifest(self, manifest: Manifest) -> None:
        """Raise InvalidInput for a method that exchanges more than models."""
        require_bufferable(manifest)


SYNCHRONOUS, FEDBUFF = SynchronousRounds(), FedBuffRounds()


def round_protocol(settings: RunSettings) -> RoundProtocol:
    """Return the protocol of a run's rounds."""
    return FEDBUFF if settings.asynchronous else SYNCHRONOUS
