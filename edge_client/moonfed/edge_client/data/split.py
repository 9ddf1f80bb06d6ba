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

    Samples that are known to be anomalous are neither: a model of what is usual must not learn to reproduce them, nor
    be judged by how well it does.
    The split depends on each sample's content, not its position: it is stable when others are added, and duplicates
    land on the same side (except at the boundary). Windows of a series overlap, so the last ones are held out, and
    those that share a row with them are in neither part.
    """
    if samples.windows is not None and fraction:
        return samples.windows.split(fraction)
    usual = _usual(samples)
    count = round(len(usual) * fraction)
    if count == 0:
        return None if len(usual) == len(samples) else usual, np.zeros(0, dtype=np.intp)
    rows = np.ascontiguousarray(samples.inputs)
    ranks = np.fromiter(
        (int.from_bytes(hashlib.blake2b(rows[row].data, digest_size=8).digest(), "little") for row in usual), np.uint64
    )
    order = usual[np.argsort(ranks, kind="stable")]
    return np.sort(order[count:]), np.sort(order[:count])


def _usual(samples: DataSet) -> Rows:
    """Return the rows that are not known to be anomalous; all, if that is not what the targets say."""
    if samples.target.kind != "none" or samples.targets is None or samples.targets.ndim > 1:
        return np.arange(len(samples))
    return np.flatnonzero(samples.targets != 1)
