"""Windows of the rows of a table: each is a sample, and the rows that follow it are what a forecast predicts.

Rows are in the order of time. Those of a group are one series, whatever lies between them; no window crosses groups.
Legend: R rows, N windows of L rows, H steps of a forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.data.data_set import Rows
from moonfed.data.storage import CHUNK_BYTES, Storage
from moonfed.data.storage import Rows as StoredRows
from moonfed.errors import InvalidInput
from moonfed.formatting import count

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of a table."""

    length: int  # L
    horizon: int  # H; 0: nothing follows
    order: Rows  # R, with the rows of each group one after the other
    starts: Rows  # N, positions in `order`
    longest: int  # rows of the largest group
    groups: int
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
            series = f"{count(self.longest, 'row')}{' in its largest group' if self.groups > 1 else ''}"
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
        return [f"{self.short} of {count(self.groups, 'group')} in {origin} {few}"]

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
        starts=np.concatenate(starts).astype(np.intp),
        longest=int(sizes.max()),
        groups=len(sizes),
        short=int((numbers == 0).sum()),
    )
