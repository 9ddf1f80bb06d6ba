"""Liveness of devices: heartbeats, and detection of devices that a round waits for and that have stalled.

Connecting, fetching or sending bytes, and reporting a larger fraction are heartbeats. A heartbeat for one run counts in
all of them: a device works on one assignment after the other. While the device waits for the coordinator, for a
transfer slot or for its receipt, it is not silent. All times are by the event loop's monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from moonfed.coordinator.rounds.events import Command, Event, Progressed, Stalled
from moonfed.coordinator.rounds.state import NOBODY, OpenRound, State

RECONNECT_SECONDS = 90.0  # devices wait up to a minute between connection attempts
SHORTEST_CHECK_SECONDS = 0.05  # between two checks of a round's devices


class Liveness:
    """Each device's last heartbeat."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, float] = {}
        self._suspended: Counter[str] = Counter()
        self._detectors: set[StallDetector] = set()
        self._revoked: frozenset[str] = frozenset()

    def heartbeat(self, device: str) -> None:
        """Record a device's heartbeat, unless it was revoked."""
        if device in self._revoked:
            return
        self._heartbeats[device] = _now()
        for detector in self._detectors:
            detector.on_heartbeat(device)

    @contextmanager
    def suspended(self, device: str) -> Iterator[None]:
        """Exempt a device from stall detection while it waits for the coordinator."""
        self._suspended[device] += 1
        try:
            yield
        finally:
            self._suspended -= Counter([device])
            self._heartbeats[device] = _now()

    def set_revoked(self, devices: frozenset[str]) -> None:
        """Replace the devices that operators revoked: rounds lose further ones at once, and heartbeats do not count."""
        further, self._revoked = devices - self._revoked, devices
        for detector in list(self._detectors) if further else ():
            detector.on_revoked(further)

    @property
    def revoked(self) -> frozenset[str]:
        """The devices that operators revoked."""
        return self._revoked

    def last_heartbeat(self, device: str) -> float:
        """Return the loop's time of a device's last heartbeat; minus infinity if there was none since the start."""
        if device in self._revoked:
            return -float("inf")
        if device in self._suspended:
            return _now()
        return self._heartbeats.get(device, -float("inf"))

    def subscribe(self, detector: StallDetector) -> None:
        """Pass heartbeats to a run's detector."""
        self._detectors.add(detector)

    def unsubscribe(self, detector: StallDetector) -> None:
        """Stop passing heartbeats to a run's detector."""
        self._detectors.discard(detector)


class StallDetector:
    """Detects the devices that one run's open round waits for and that have been silent for `seconds`.

    `deliver` receives a Stalled for each of them, and a Progressed for each lost device that sends a heartbeat again.
    """

    def __init__(self, liveness: Liveness, seconds: float, deliver: Callable[[Stalled | Progressed], object]) -> None:
        self._liveness = liveness
        self._seconds = seconds
        self._deliver = deliver
        self._round: OpenRound | None = None
        self._since = 0.0  # silence before it does not count; by the loop's clock
        self._assigned: dict[str, float] = {}  # time of the assignment from which each device's silence counts
        self._fractions: dict[str, float] = {}  # the largest reported by each device
        self._recovered: set[str] = set()  # lost devices whose Progressed has been delivered
        self._timer: asyncio.TimerHandle | None = None
        liveness.subscribe(self)

    def watch_round(self, current: OpenRound | None, *, resumed: bool = False) -> None:
        """Watch the open round, if any; `resumed`: after a restart, which devices need time to notice."""
        lost_before = self._round.lost if self._round else NOBODY
        self._round = current
        self._recovered.clear()
        for device in current.lost - lost_before if current else ():
            # Its heartbeat may have come just before it was declared lost.
            if self._liveness.last_heartbeat(device) + self._seconds > _now():
                self.on_heartbeat(device)
        if resumed and current:
            self._since = _now() + max(0.0, RECONNECT_SECONDS - self._seconds)
            self.on_revoked(self._liveness.revoked)
        if current and self._timer is None:
            self._check_at(max(self._since, _now()) + self._seconds)

    def on_step(self, event: Event, state: State, commands: Sequence[Command]) -> None:
        """Watch the round that is open after a step of the state machine."""
        self.watch_round(state.open)

    def assigned(self, device: str, *, repeated: bool = False) -> None:
        """Record an assignment; a device without a heartbeat since its previous one gets no more time.

        `repeated`: its session has this assignment already, so that its progress goes on.
        """
        if self._liveness.last_heartbeat(device) >= self._assigned.get(device, -float("inf")):
            self._assigned[device] = _now()
        if not repeated:
            self._fractions.pop(device, None)

    def progressed(self, device: str, fraction: float) -> None:
        """Record a device's reported fraction, which is a heartbeat if it is larger than before."""
        if fraction > self._fractions.get(device, -1.0):
            self._fractions[device] = fraction
            self._liveness.heartbeat(device)

    def released(self, device: str) -> None:
        """Record that a device was told to stop and is about to start another assignment."""
        self._liveness.heartbeat(device)

    def on_heartbeat(self, device: str) -> None:
        """Recover a lost device of the open round."""
        current = self._round
        if current and device in current.lost and device not in self._recovered:
            self._recovered.add(device)
            self._deliver(Progressed(round=current.round, attempt=current.attempt, device=device))

    def on_revoked(self, devices: Collection[str]) -> None:
        """Lose devices of the open round that were revoked."""
        if current := self._round:
            for device in current.outstanding:
                if device in devices:
                    self._deliver(Stalled(round=current.round, attempt=current.attempt, device=device))

    def silence(self) -> dict[str, float]:
        """Return the seconds since the last heartbeat of each device that the round waits for."""
        now = _now()
        outstanding = self._round.outstanding if self._round else ()
        return {device: max(0.0, now - self._silent_since(device)) for device in outstanding}

    def progress(self) -> dict[str, float]:
        """Return the reported progress of each device that the round waits for, as a fraction; 0 if none yet."""
        outstanding = self._round.outstanding if self._round and not self._round.reducing else ()
        return {device: self._fractions.get(device, 0.0) for device in outstanding}

    def fraction(self, device: str) -> float:
        """Return the largest fraction that a device has reported since its assignment."""
        return self._fractions.get(device, 0.0)

    def close(self) -> None:
        """Stop detecting."""
        self._liveness.unsubscribe(self)
        self._round = None
        if self._timer:
            self._timer.cancel()

    def _silent_since(self, device: str) -> float:
        return max(self._since, self._assigned.get(device, 0.0), self._liveness.last_heartbeat(device))

    def _check_at(self, moment: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(moment, self._check)

    def _check(self) -> None:
        """Deliver the devices that have stalled, and check again when the next one may have."""
        current = self._round
        now = _now()
        self._timer = None
        if current is None:
            return
        ends = {device: self._silent_since(device) + self._seconds for device in current.outstanding}
        for device in [device for device, end in ends.items() if end <= now]:
            self._assigned.pop(device, None)  # a later assignment gets the full timeout
            self._deliver(Stalled(round=current.round, attempt=current.attempt, device=device))
        later = min((end for end in ends.values() if end > now), default=now + self._seconds)
        self._check_at(max(later, now + SHORTEST_CHECK_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()
