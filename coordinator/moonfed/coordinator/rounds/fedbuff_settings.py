"""Settings of asynchronous rounds: FedBuff, Nguyen et al., AISTATS 2022."""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.errors import InvalidInput
from moonfed.validate import require_whole

MAX_BUFFER = 100_000
MAX_STALENESS = 64  # rounds; receipts are kept for longer than that


@dataclass(frozen=True, slots=True, kw_only=True)
class FedBuffSettings:
    """`buffer`: K, the updates that make the next global model.

    `max_staleness`: how many global models may have been made since a device began; older updates are rejected.
    """

    buffer: int
    max_staleness: int = 20

    def __post_init__(self) -> None:
        require_whole("asynchronous", self.buffer, 1, MAX_BUFFER)
        require_whole("max_staleness", self.max_staleness, 0, MAX_STALENESS)


def parse_asynchronous(buffer: int | None, max_staleness: int | None) -> FedBuffSettings | None:
    """Parse an operator's asynchronous settings; None for synchronous rounds, which have no staleness."""
    if buffer is None:
        if max_staleness is not None:
            raise InvalidInput(f"max_staleness is {max_staleness}; it applies to asynchronous rounds only")
        return None
    if max_staleness is None:
        return FedBuffSettings(buffer=buffer)
    return FedBuffSettings(buffer=buffer, max_staleness=max_staleness)
