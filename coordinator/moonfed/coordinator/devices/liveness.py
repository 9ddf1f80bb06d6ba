"""Who shows signs of progress, by the loop's monotonic clock, and who of a round's devices has shown none for long.

Signs are: to attend, to fetch or send bytes, to report a larger fraction. A sign for one run counts in all: a device
works on one thing after the other. While it waits for us, for its turn or for its receipt, it is not silent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from moonfed.coordinator.rounds.events import Progressed, Stalled
from moonfed.coordinator.rounds.state import NOBODY, OpenRound

RECONNECT_SECONDS = 90.0  # devices wait up to a minute between their attempts to reach a restarted coordinator
LEAST_LOOK_SECONDS = 0.05  # between two looks at a round's devices


class Liveness:
    """Each device's newest sign of progress."""

    def __init__(self) -> None:
        self._signs: dict[str, float] = {}
        self._held: Counter[str] = Counter()
        self._patiences: set[StallDetector] = set()

    def sign(self, device: str) -> None:
        """The device makes progress, with whatever."""
        self._signs[device] = _now()
        for patience in self._patiences:
            patience.noticed(device)

    @contextmanager
    def held(self, device: str) -> Iterator[None]:
        """For as long as the context lasts the device waits for us, which is no silence of its own."""
        self._held[device] += 1
        try:
            yield
        finally:
            self._held -= Counter([device])
            self._signs[device] = _now()

    def newest(self, device: str) -> float:
        """When that was, by the loop's clock; long ago if there was none since the coordinator started."""
        if device in self._held:
            return _now()
        return self._signs.get(device, -float("inf"))

    def follow(self, patience: StallDetector) -> None:
        """A run wants to know."""
        self._patiences.add(patience)

    def leave(self, patience: StallDetector) -> None:
        """It does no more."""
        self._patiences.discard(patience)


class StallDetector:
    """One run's patience with the devices that its open round waits for.

    `tell` gets a Stalled for each whose time is over, and a Progressed for each that was lost and shows a sign again.
    """

    def __init__(self, liveness: Liveness, seconds: float, tell: Callable[[Stalled | Progressed], object]) -> None:
        self._liveness, self._seconds, self._tell = liveness, seconds, tell
        self._round: OpenRound | None = None
        self._since = 0.0  # nobody's silence counts from before, by the loop's clock
        self._asked: dict[str, float] = {}  # when each device got the assignment that its silence counts from
        self._fractions: dict[str, float] = {}  # the largest that each device has reported
        self._woken: set[str] = set()  # lost devices of whose progress the run is about to hear
        self._timer: asyncio.TimerHandle | None = None
        liveness.follow(self)

    def wait_for(self, current: OpenRound | None, *, resumed: bool = False) -> None:
        """Where the run stands now; `resumed`: after the coordinator started, so that devices must find it again."""
        lost_before = self._round.lost if self._round else NOBODY
        self._round = current
        self._woken.clear()
        for device in current.lost - lost_before if current else ():
            if self._liveness.newest(device) + self._seconds > _now():  # a sign just before it counted as lost
                self.noticed(device)
        if resumed and current:
            self._since = _now() + max(0.0, RECONNECT_SECONDS - self._seconds)
        if current and self._timer is None:
            self._look_at(max(self._since, _now()) + self._seconds)

    def asked(self, device: str) -> None:
        """The device gets an assignment. One that has shown no sign since an earlier one has no more time for it."""
        if self._liveness.newest(device) >= self._asked.get(device, -float("inf")):
            self._asked[device] = _now()
        self._fractions.pop(device, None)

    def reported(self, device: str, fraction: float) -> None:
        """A device of the round said how far it is, which is a sign if it is further than before."""
        if fraction > self._fractions.get(device, -1.0):
            self._fractions[device] = fraction
            self._liveness.sign(device)

    def freed(self, device: str) -> None:
        """A device heard that what it works on is not wanted any more: it is about to take up something else."""
        self._liveness.sign(device)

    def noticed(self, device: str) -> None:
        """A device has shown a sign."""
        current = self._round
        if current and device in current.lost and device not in self._woken:
            self._woken.add(device)
            self._tell(Progressed(round=current.round, attempt=current.attempt, device=device))

    def silence(self) -> dict[str, float]:
        """For how many seconds each device that the round waits for has shown no sign."""
        now = _now()
        waited_for = self._round.outstanding if self._round else ()
        return {device: max(0.0, now - self._counted_from(device)) for device in waited_for}

    def close(self) -> None:
        """The run tells nobody any more."""
        self._liveness.leave(self)
        self._round = None
        if self._timer:
            self._timer.cancel()

    def _counted_from(self, device: str) -> float:
        return max(self._since, self._asked.get(device, 0.0), self._liveness.newest(device))

    def _look_at(self, moment: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(moment, self._look)

    def _look(self) -> None:
        """Tells of whoever's time is over, and looks again when the next one's may be."""
        current, now, self._timer = self._round, _now(), None
        if current is None:
            return
        ends = {device: self._counted_from(device) + self._seconds for device in current.outstanding}
        for device in [device for device, end in ends.items() if end <= now]:
            self._asked.pop(device, None)  # asked again later, it has all its time
            self._tell(Stalled(round=current.round, attempt=current.attempt, device=device))
        later = min((end for end in ends.values() if end > now), default=now + self._seconds)
        self._look_at(max(later, now + LEAST_LOOK_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()
