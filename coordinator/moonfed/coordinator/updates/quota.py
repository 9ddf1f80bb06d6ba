"""How many bytes one device may send for one round: resuming and starting again are welcome, but not for ever."""

from __future__ import annotations

from collections import Counter

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.fedbuff_settings import MAX_STALENESS
from moonfed.errors import ResourceExhausted

TRIES = 4  # whole updates' worth
ROUNDS_KEPT = MAX_STALENESS + 1  # whose counts are kept; of no more are updates taken at once in one run


class ByteQuota:
    """What the devices of one run have sent, by attempt at a round. `update`: bytes of the largest one allowed."""

    def __init__(self, update: int) -> None:
        self._most = TRIES * update
        self._sent: dict[AttemptId, Counter[str]] = {}

    def take(self, attempt: AttemptId, device: str, size: int) -> None:
        """Counts bytes that have come; ResourceExhausted if there were too many of this device."""
        if attempt not in self._sent and len(self._sent) == ROUNDS_KEPT:
            del self._sent[next(iter(self._sent))]
        sent = self._sent.setdefault(attempt, Counter())
        if sent[device] + size > self._most:
            raise ResourceExhausted(
                f"device {device!r} has sent {sent[device]} bytes for {attempt}; {self._most} are allowed, "
                f"{TRIES} times the largest update"
            )
        sent[device] += size

    def forgive(self, attempt: AttemptId, device: str) -> None:
        """What the device has sent was whole and could not be kept; that it comes again is not the device's doing."""
        if attempt in self._sent:
            del self._sent[attempt][device]
