"""The state of a run: the values that the state machine steps through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["running", "finished", "stopped"]
Names = frozenset[str]
NOBODY: Names = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """An open round. A device of the cohort is in at most one of the four sets."""

    round: int
    attempt: int
    cohort: tuple[str, ...]
    reported: Names = NOBODY
    rejected: Names = NOBODY
    declined: Names = NOBODY
    lost: Names = NOBODY
    overdue: bool = False
    reducing: bool = False

    @property
    def outstanding(self) -> tuple[str, ...]:
        """The devices whose updates the round waits for."""
        settled = self.reported | self.rejected | self.declined | self.lost
        return tuple(device for device in self.cohort if device not in settled)

    @property
    def waits(self) -> bool:
        """True if the round waits for any device."""
        return len(self.reported) + len(self.rejected) + len(self.declined) + len(self.lost) < len(self.cohort)

    @property
    def missing(self) -> tuple[str, ...]:
        """The devices without an accepted update."""
        return tuple(device for device in self.cohort if device not in self.reported)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a run."""

    committed: int = 0  # rounds
    attempt: int = 1  # of the open round, or of the next one to open
    online: Names = NOBODY
    samples: Mapping[str, int] = field(default_factory=dict)  # by device, where known
    open: OpenRound | None = None
    backing_off: bool = False  # between an abandoned round and the next attempt
    reduction_error: str = ""  # why the closed round could not be reduced yet
    failures: int = 0  # consecutive failures to reduce it
    stopping: bool = False
    status: Status = "running"
