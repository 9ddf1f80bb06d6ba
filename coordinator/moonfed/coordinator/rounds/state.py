"""The state of a run: the values that the state machine steps through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Status = Literal["running", "finished", "stopped", "failed"]
RunStatus = Status | Literal["paused"]  # as operators see it: a paused run is still running
ACTIVE: tuple[RunStatus, ...] = ("running", "paused")
Names = frozenset[str]
Attempts = Mapping[str, int]  # device to the attempt at a round that its update was trained in
NOBODY: Names = frozenset()
NOTHING: Attempts = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """An open round. A device of the cohort is in at most one of reported, rejected, declined, lost and left.

    The round waits for a device that has left, because it may return, and replaces it if another one is idle.
    """

    round: int
    attempt: int
    cohort: tuple[str, ...]
    replacements: Names = NOBODY  # devices of the cohort that joined after the draw
    reused: Attempts = field(default_factory=dict)  # reported devices whose update is from an earlier attempt
    reported: Names = NOBODY
    rejected: Names = NOBODY
    declined: Names = NOBODY
    lost: Names = NOBODY
    left: Names = NOBODY
    overdue: bool = False
    reducing: bool = False

    @property
    def drawn(self) -> int:
        """Number of devices that the cohort was drawn with; replacements keep as many at work."""
        return len(self.cohort) - len(self.replacements)

    @property
    def vacancies(self) -> int:
        """Number of drawn devices that will not report, or have left, and are not replaced."""
        gone = len(self.rejected) + len(self.declined) + len(self.lost) + len(self.left)
        return max(0, gone - len(self.replacements))

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

    @property
    def attempts(self) -> dict[str, int]:
        """The attempt that each accepted update was trained in, by device."""
        return {device: self.reused.get(device, self.attempt) for device in sorted(self.reported)}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of a run."""

    committed: int = 0  # rounds
    attempt: int = 1  # of the open round, or of the next one to open
    online: Names = NOBODY  # and eligible
    ineligible: Mapping[str, str] = field(default_factory=dict)  # other devices that are online, and why
    samples: Mapping[str, int] = field(default_factory=dict)  # by device, where known
    open: OpenRound | None = None
    backing_off: bool = False  # between an abandoned round and the next attempt
    reduction_error: str = ""  # why the closed round could not be reduced yet
    failures: int = 0  # consecutive failures to reduce it
    reusable: Attempts = field(default_factory=dict)  # updates of abandoned attempts that the next one may count
    wait_limited: bool = False  # a WaitTimedOut is due
    paused: bool = False
    stopping: Literal["", "stopped", "finished"] = ""  # the status with which the run is to end
    status: Status = "running"

    @property
    def failed_attempts(self) -> int:
        """Number of attempts in a row that made no model."""
        return self.attempt - 1

    @property
    def run_status(self) -> RunStatus:
        """The status as operators see it."""
        return "paused" if self.paused and self.status == "running" else self.status
