"""What a source of samples is, and the split of its samples into training and holdout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import numpy as np

from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples

Sign = Callable[[], None]  # called now and then while reading, so that nobody thinks the process hangs


class Source(Protocol):
    """One place that samples come from."""

    decodes: bool  # whether reading costs so much that the result is worth a cache on disk

    def check(self) -> None:
        """Raises what is wrong before any bundle is known: InvalidInput, or NotFound."""

    def fingerprint(self) -> str | None:
        """Changes when the samples do; None if that cannot be known, and they are read anew for each round."""

    def read(self, spec: InputSpec, classes: tuple[str, ...], sign: Sign) -> RawSamples:
        """The samples as the bundle wants them; InvalidInput names what does not fit."""


def split(samples: RawSamples, fraction: float) -> tuple[RawSamples, RawSamples]:
    """Training and holdout samples; `fraction` of all are held out, rounded.

    A sample's content decides, not its place: the split stays when others are added, and copies of one picture end on
    one side (but for one at the border).
    """
    count = round(len(samples) * fraction)
    if count == 0:
        return samples, samples.take(np.zeros(0, dtype=np.intp))
    rows = np.ascontiguousarray(samples.inputs)
    ranks = np.array([int.from_bytes(hashlib.blake2b(row.data, digest_size=8).digest(), "little") for row in rows],
                     dtype=np.uint64)  # fmt: skip
    order = np.argsort(ranks, kind="stable")
    return samples.take(np.sort(order[count:])), samples.take(np.sort(order[:count]))
