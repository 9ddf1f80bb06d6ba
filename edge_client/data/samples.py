"""Samples as every source returns them, checked against the bundle, and the split into training and holdout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput
from moonfed.manifest import InputSpec

Sign = Callable[[], None]  # called now and then while reading, so that nobody thinks the process hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSamples:
    """Raw inputs [N, …] in the bundle's dtype and labels [N] int64: positions in the bundle's class names."""

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: npt.NDArray[np.intp]) -> RawSamples:
        """A copy of some samples."""
        return RawSamples(inputs=self.inputs[index], labels=self.labels[index])


class Source(Protocol):
    """One place that samples come from."""

    decodes: bool  # whether reading costs so much that the result is worth a cache on disk

    def check(self) -> None:
        """Raises what is wrong before any bundle is known: InvalidInput, or NotFound."""

    def fingerprint(self) -> str | None:
        """Changes when the samples do; None if that cannot be known, and they are read anew for each round."""

    def read(self, spec: InputSpec, classes: tuple[str, ...], sign: Sign) -> RawSamples:
        """The samples as the bundle wants them; InvalidInput names what does not fit."""


def checked(inputs: object, labels: object, spec: InputSpec, classes: tuple[str, ...], where: str) -> RawSamples:
    """Somebody's arrays as samples; InvalidInput names the field, what was found and what is allowed.

    `where`: the file or function that they came from, for the message.
    """
    raw, targets = np.asarray(inputs), np.asarray(labels)
    if raw.dtype != np.dtype(spec.dtype):
        raise InvalidInput(f"inputs of {where} have dtype {raw.dtype}; the bundle takes {spec.dtype}")
    if raw.shape[1:] != spec.shape or raw.ndim == 0:
        wanted = ", ".join(["N", *map(str, spec.shape)])
        raise InvalidInput(f"inputs of {where} have shape {list(raw.shape)}; the bundle takes [{wanted}]")
    if targets.dtype.kind not in "iu":
        raise InvalidInput(f"labels of {where} have dtype {targets.dtype}; they must be whole numbers")
    if targets.shape != raw.shape[:1]:
        raise InvalidInput(f"labels of {where} have shape {list(targets.shape)}; one for each of {len(raw)} inputs")
    if len(targets) and not (int(targets.min()) >= 0 and int(targets.max()) < len(classes)):
        raise InvalidInput(
            f"labels of {where} reach from {targets.min()} to {targets.max()}; "
            f"the bundle has {len(classes)} classes, 0 to {len(classes) - 1}"
        )
    if raw.dtype.kind == "f" and not np.isfinite(raw).all():
        raise InvalidInput(f"inputs of {where} hold NaN or infinite values; all must be finite")
    return RawSamples(inputs=np.require(raw, requirements=["C", "W"]), labels=targets.astype(np.int64))


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
