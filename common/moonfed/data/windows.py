"""Windows of the rows of a table: each is a sample, and the rows that follow it are what a forecast predicts.

Rows are in the order of time. Those of a group are one series, whatever lies between them; no window crosses groups.
Windows overlap, so a test set of some of them is the end of each series, and no row is on both sides.
Legend: R rows, N windows of L rows, H steps of a forecast, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.data.storage import CHUNK_BYTES, Storage
from moonfed.data.storage import Rows as StoredRows
from moonfed.errors import InvalidInput
from moonfed.formatting import count

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]
COMPARED = 64  # pairs of neighbours, to find how far windows are apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows of series, in the order of time."""

    length: int  # L
    horizon: int  # H; 0: nothing follows
    order: Rows  # R, with the rows of each group one after the other
    begins: Rows  # G, where each group begins in `order`
    starts: Rows  # N, positions in `order`
    longest: int  # rows of the largest group
    short: int  # groups that are too short for a window

    @property
    def needed(self) -> int:
        """The rows of a window and of what follows it."""
        return self.length + self.horizon

    @property
    def lasts(self) -> Rows:
        """The last row of each window."""
        return self.order[self.starts + self.length - 1]

    def of(self, rows: Array, storage: Storage) -> Array:
        """Return the windows [N, L, …] of rows [R, …]."""
        return self._cut(rows, 0, storage.rows("inputs", (self.length, *rows.shape[1:]), rows.dtype, len(self.starts)))

    def after(self, rows: Array, storage: Storage) -> Array:
        """Return what follows each window, [N, H, …]."""
        shape = (self.horizon, *rows.shape[1:])
        return self._cut(rows, self.length, storage.rows("targets", shape, rows.dtype, len(self.starts)))

    def require_some(self, origin: str) -> None:
        """Raise InvalidInput if every series is too short."""
        if len(self.starts) == 0:
            series = f"{count(self.longest, 'row')}{' in its largest group' if len(self.begins) > 1 else ''}"
            after = f" and the next {self.horizon}" if self.horizon else ""
            raise InvalidInput(
                f"{origin} has {series}; a window of {self.length} rows{after} needs {self.needed}",
                field="rows",
                value=self.longest,
            )

    def notes(self, origin: str) -> list[str]:
        """Return sentences about what is left out."""
        if not self.short:
            return []
        few = f"have fewer than {self.needed} rows and are ignored"
        return [f"{self.short} of {count(len(self.begins), 'group')} in {origin} {few}"]

    def take(self, windows: Rows) -> Windows:
        """Return some of the windows."""
        return replace(self, starts=self.starts[windows])

    def numbered(self, numbers: npt.NDArray[np.int64]) -> Windows:
        """Return the windows of rows that have these numbers [R] in their file."""
        return replace(self, order=numbers[self.order].astype(np.intp))

    @property
    def covered(self) -> Rows:
        """The rows that windows hold, or that follow them, each once."""
        places = np.zeros(len(self.order) + 1, np.intp)
        np.add.at(places, self.starts, 1)
        np.add.at(places, self.starts + self.needed, -1)
        return self.order[np.cumsum(places[:-1]) > 0]

    def split(self, share: float) -> tuple[Rows, Rows]:
        """Return the windows to train on, and those to test with: `share` of all, about, at the end of each series.

        Windows that share a row with one for testing are in neither. A series that is too short to be cut is on one
        side.
        """
        order = np.argsort(self.starts, kind="stable")
        ends = np.searchsorted(self.starts[order], self.begins[1:])
        trained, tested, owed = list[Rows](), list[Rows](), 0.0
        for own in np.split(order, ends):
            owed += share * len(own)
            before, after = self._cut_in_time(own, max(0, len(own) - round(owed)))
            if not len(before):
                before, after = (own[:0], own) if owed >= len(own) else (own, own[:0])
            owed -= len(after)
            trained.append(before)
            tested.append(after)
        return np.sort(np.concatenate(trained)), np.sort(np.concatenate(tested))

    def _cut_in_time(self, own: Rows, place: int) -> tuple[Rows, Rows]:
        """Return the windows from a place on, and those before them that share no row with them."""
        if place == len(own):
            return own, own[:0]
        return own[self.starts[own] + self.needed <= self.starts[own[place]]], own[place:]

    def _cut(self, rows: Array, first: int, cut: StoredRows) -> Array:
        length = cut.shape[0]
        step = max(1, CHUNK_BYTES // max(1, length * rows[:1].nbytes))
        for start in range(0, len(self.starts), step):
            places = self.starts[start : start + step, None] + np.arange(first, first + length)
            cut.append(rows[self.order[places]])
        return cut.array()


def find_windows(groups: Sequence[str], rows: int, length: int, horizon: int) -> Windows:
    """Find all windows; `groups`: the name of each row's group, or none if all rows are one series."""
    codes = dict[str, int]()
    belongs = np.array([codes.setdefault(name, len(codes)) for name in groups] or [0] * rows, np.intp)
    sizes = np.bincount(belongs)
    begins = np.cumsum(sizes) - sizes
    numbers = np.maximum(sizes - (length + horizon) + 1, 0)
    starts = [begin + np.arange(number) for begin, number in zip(begins, numbers, strict=True)]
    return Windows(
        length=length,
        horizon=horizon,
        order=np.argsort(belongs, kind="stable"),
        begins=begins,
        starts=np.concatenate(starts).astype(np.intp),
        longest=int(sizes.max()),
        short=int((numbers == 0).sum()),
    )


def windows_of_one_series(inputs: Array, horizon: int) -> Windows:
    """Describe windows [N, L, …] that were cut elsewhere, from one series, each as far from the one before."""
    number, length = inputs.shape[:2]
    pairs = (
        np.unique(np.linspace(0, max(number - 2, 0), COMPARED).astype(np.intp)) if number > 1 else np.zeros(0, np.intp)
    )
    step = next((step for step in range(1, length) if _are_apart(inputs, pairs, step)), length + horizon)
    rows = step * (number - 1) + length + horizon if number else 0
    return Windows(
        length=length,
        horizon=horizon,
        order=np.arange(rows),
        begins=np.zeros(1, np.intp),
        starts=np.arange(number) * step,
        longest=rows,
        short=0,
    )


def _are_apart(inputs: Array, pairs: Rows, step: int) -> bool:
    """Return whether most windows go on where those before, without their first `step` rows, end."""
    same = [np.array_equal(inputs[pair, step:], inputs[pair + 1, :-step]) for pair in pairs]
    return 2 * sum(same) > len(same)
