"""The interface of a data source, and the split of its samples into training and holdout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples

HeartbeatCallback = Callable[[], None]  # called regularly while reading, as a heartbeat


class Source(Protocol):
    """A source of samples."""

    decodes: bool  # whether reading is slow enough to cache the result on disk

    def check(self) -> None:
        """Raise InvalidInput or NotFound for problems that do not depend on the bundle."""

    def fingerprint(self) -> str | None:
        """Return a fingerprint of the samples; None if unknown: the samples are then read again in every round."""

    def read(self, spec: InputSpec, classes: tuple[str, ...], heartbeat: HeartbeatCallback) -> RawSamples:
        """Return the samples in the bundle's form; InvalidInput names what does not fit."""


Rows = npt.NDArray[np.intp]


def split(samples: RawSamples, fraction: float) -> tuple[RawSamples, RawSamples]:
    """Split into training and holdout samples; `fraction` of all samples, rounded, are held out."""
    trained, held_out = split_rows(samples, fraction)
    return samples if trained is None else samples.take(trained), samples.take(held_out)


def split_rows(samples: RawSamples, fraction: float) -> tuple[Rows | None, Rows]:
    """Return the rows to train on, None for all, and the rows held out: `fraction` of all, rounded.

    The split depends on each sample's content, not its position: it is stable when others are added, and duplicates
    land on the same side (except at the boundary).
    """
    count = round(len(samples) * fraction)
    if count == 0:
        return None, np.zeros(0, dtype=np.intp)
    rows = np.ascontiguousarray(samples.inputs)
    ranks = np.array([int.from_bytes(hashlib.blake2b(row.data, digest_size=8).digest(), "little") for row in rows],
                     dtype=np.uint64)  # fmt: skip
    order = np.argsort(ranks, kind="stable")
    return np.sort(order[count:]), np.sort(order[:count])
