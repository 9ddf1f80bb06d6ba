"""Entries of the privacy ledger, and their totals."""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.control.privacy import Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """A release of devices' data to whoever sees the global models: a committed round's, or one without noise."""

    run: str
    created: float  # the run, in seconds since the epoch: a later one may have its name
    round: int
    attempt: int
    mechanism: Mechanism
    what: str = ""  # was released without noise
    delta: float = 0.0
    sampling_rate: float = 0.0
    noise_multiplier: float = 0.0
    clip_norm: float = 0.0
    next_clip_norm: float = 0.0
    updates_digest: str = ""  # of all that the release is a function of
    committed: float = 0.0  # seconds since the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerTotal:
    """The releases of one run that were made in the same way; fields without a comment are those of each."""

    run: str
    created: float
    mechanism: Mechanism
    what: str = ""
    delta: float = 0.0
    sampling_rate: float = 0.0
    noise_multiplier: float = 0.0
    releases: int  # number of them
    next_clip_norm: float = 0.0  # of the last one
    committed: float  # the latest of them, in seconds since the epoch
