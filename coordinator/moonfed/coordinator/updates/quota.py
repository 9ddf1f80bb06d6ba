"""The byte quota of a device in one round: it bounds resumed and repeated uploads."""

from __future__ import annotations

from collections import Counter

from moonfed.control.run_settings import MAX_STALENESS
from moonfed.coordinator.records import AttemptId
from moonfed.errors import ResourceExhausted

TRIES = 4  # whole updates' worth of bytes
ATTEMPTS_KEPT = MAX_STALENESS + 1  # a run receives updates of no more attempts at the same time


class ByteQuota:
    """The bytes that the devices of one run have sent, by attempt.

    `largest_update`: bytes of the largest update that the run accepts.
    """

    def __init__(self, largest_update: int) -> None:
        self._limit = TRIES * largest_update
        self._sent: dict[AttemptId, Counter[str]] = {}

    def charge(self, attempt: AttemptId, device: str, size: int) -> None:
        """Count received bytes; raises ResourceExhausted beyond the device's quota."""
        if attempt not in self._sent and len(self._sent) == ATTEMPTS_KEPT:
            del self._sent[next(iter(self._sent))]
        sent = self._sent.setdefault(attempt, Counter())
        if sent[device] + size > self._limit:
            raise ResourceExhausted(
                f"device {device!r} would have sent {sent[device] + size} bytes for {attempt}; at most {self._limit} "
                f"are allowed, {TRIES} times the largest update",
                field="device",
                value=device,
            )
        sent[device] += size

    def refund(self, attempt: AttemptId, device: str) -> None:
        """Reset a device's count: its bytes arrived, but an internal failure makes it send them again."""
        if attempt in self._sent:
            del self._sent[attempt][device]
