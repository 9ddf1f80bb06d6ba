"""The split of a device's samples into training and holdout."""

from __future__ import annotations

import hashlib

import numpy as np

from moonfed.data.data_set import DataSet, Rows


def split(samples: DataSet, fraction: float) -> tuple[DataSet, DataSet]:
    """Split into training and holdout samples: see `split_rows`."""
    trained, held_out = split_rows(samples, fraction)
    return samples if trained is None else samples.take(trained), samples.take(held_out)


def split_rows(samples: DataSet, fraction: float) -> tuple[Rows | None, Rows]:
    """Return the rows to train on, None for all, and the rows held out: `fraction` of all, rounded.

    The split depends on each sample's content, not its position: it is stable when others are added, and duplicates
    land on the same side (except at the boundary). Windows of a series overlap, so the last ones are held out, and
    those that share a row with them are in neither part.
    """
    if samples.windows is not None and fraction:
        return samples.windows.split(fraction)
    count = round(len(samples) * fraction)
    if count == 0:
        return None, np.zeros(0, dtype=np.intp)
    rows = np.ascontiguousarray(samples.inputs)
    ranks = np.array([int.from_bytes(hashlib.blake2b(row.data, digest_size=8).digest(), "little") for row in rows],
                     dtype=np.uint64)  # fmt: skip
    order = np.argsort(ranks, kind="stable")
    return np.sort(order[count:]), np.sort(order[:count])
