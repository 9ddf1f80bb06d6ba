"""The clock of one run's rounds: when the open attempt's devices began, delivered and were counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from moonfed.coordinator.rounds.phases import Moments

Attempt = tuple[int, int]  # round and attempt


@dataclass(frozen=True, slots=True)
class _Moment:
    attempt: Attempt
    time: float


class RoundClock:
    """The moments of the open attempt, by a monotonic clock. Lives on the run's event loop.

    A device's update may be counted in a later attempt than the one that it was assigned in.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attempt: Attempt | None = None
        self._opened = 0.0
        self._resumed = False
        self._last_upload: float | None = None
        self._last_receipt: float | None = None
        self._closed: float | None = None
        self._assigned: dict[str, _Moment] = {}  # by device
        self._uploads: dict[str, _Moment] = {}  # the first byte of the update, by device
        self._training: dict[str, float] = {}  # seconds of each device whose update is yet to be in a model

    def open(self, attempt: Attempt, seconds_ago: float = 0.0, *, resumed: bool = False) -> None:
        """Begin an attempt; `resumed`: it opened `seconds_ago`, before the coordinator started."""
        self._attempt, self._resumed = attempt, resumed
        self._opened = self._clock() - seconds_ago
        self._last_upload = self._last_receipt = self._closed = None

    def assigned(self, device: str, attempt: Attempt) -> None:
        """Record an assignment; a repetition, after a device has connected again, changes nothing."""
        known = self._assigned.get(device)
        if not (known and known.attempt == attempt) and not (self._resumed and attempt == self._attempt):
            self._assigned[device] = _Moment(attempt, self._clock())

    def upload_began(self, device: str, attempt: Attempt) -> None:
        """Record the first byte of an update; resuming it changes nothing."""
        known = self._uploads.get(device)
        if not (known and known.attempt == attempt):
            self._uploads[device] = _Moment(attempt, self._clock())

    def counted(self, device: str, attempt: Attempt) -> None:
        """Record that a device's update is accepted; one that another coordinator received has no earlier moments."""
        now = self._clock()
        upload = self._uploads.pop(device, None)
        assigned = self._assigned.get(device)
        began = upload.time if upload and upload.attempt == attempt else now
        if upload and assigned and upload.attempt == assigned.attempt == attempt:
            self._training[device] = began - assigned.time
        if self._closed is None:
            self._last_receipt = now
            self._last_upload = began if self._last_upload is None else max(began, self._last_upload)

    def close(self) -> None:
        """Record that the attempt is being reduced; after a failed reduction the first one counts."""
        self._closed = self._clock() if self._closed is None else self._closed

    def moments(self, attempt: Attempt) -> Moments | None:
        """Return the moments of the open attempt, as if it ended now; None for another one."""
        if attempt != self._attempt:
            return None
        return Moments(
            opened=self._opened,
            last_upload=self._last_upload,
            last_receipt=self._last_receipt,
            closed=self._closed,
            ended=self._clock(),
        )

    def training(self, devices: Collection[str]) -> dict[str, float]:
        """Return the seconds from assignment to update of these devices, where known."""
        return {device: self._training[device] for device in devices if device in self._training}

    def forget(self, devices: Collection[str]) -> None:
        """Forget the seconds of devices whose updates are in a model."""
        for device in devices:
            self._training.pop(device, None)
