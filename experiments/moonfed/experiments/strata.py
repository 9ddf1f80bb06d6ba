"""Groups of samples, whose shares test sets and subsets preserve, and which uneven splits distribute.

Classes; of values, ten bins of equal size; of anomalies, whether a sample is one. Other samples are one group.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, Labels, Rows

BINS = 10  # of values: as many as the classes of most of the papers' data sets


def strata(samples: DataSet) -> Labels:
    """Return the group of each sample."""
    targets = samples.known_targets()
    if samples.target.kind == "class":
        return targets
    if samples.target.kind == "values" and len(samples):
        values = first_value(samples)
        edges = np.quantile(values, np.arange(1, BINS) / BINS)
        return np.searchsorted(edges, values, side="right").astype(np.int64)
    return is_anomalous(samples).astype(np.int64)


def stratum_names(target: TargetSpec) -> tuple[str, ...]:
    """Return the names of the groups that `strata` tells apart in training samples."""
    if target.kind == "class":
        return target.names
    if target.kind == "values":
        return tuple(str(number) for number in range(1, BINS + 1))
    return ("samples",)


def stratum_word(target: TargetSpec) -> str:
    """Return what a group is called; empty if there is one group only."""
    return {"class": "class", "values": "tenth of the values"}.get(target.kind, "")


def first_value(samples: DataSet) -> npt.NDArray[np.float64]:
    """Return the first of each sample's values, which is the mean over the steps of a forecast."""
    values = samples.known_targets().astype(np.float64)
    found: npt.NDArray[np.float64] = values.reshape(len(values), -1, values.shape[-1])[:, :, 0].mean(axis=1)
    return found


def is_anomalous(samples: DataSet) -> npt.NDArray[np.bool_]:
    """Return which samples are known to be anomalous."""
    targets = samples.targets
    if samples.target.kind != "none" or targets is None or targets.ndim != 1:
        return np.zeros(len(samples), np.bool_)
    found: npt.NDArray[np.bool_] = targets == 1
    return found


def train_and_test(samples: DataSet) -> tuple[Rows, Rows]:
    """Return which samples are for training, and for testing: every fifth of each class, or by the first value.

    Of series, whose windows overlap, the last fifth; no training sample shares a row with it. Samples that are known
    to be anomalous are all for testing, with every fifth of the others.
    """
    if samples.windows is not None:
        return samples.windows.split(1 / 5)
    test = _held_out(samples)
    return np.flatnonzero(~test), np.flatnonzero(test)


def _held_out(samples: DataSet) -> npt.NDArray[np.bool_]:
    if samples.target.kind == "values":
        return every_fifth(first_value(samples))
    anomalous = is_anomalous(samples)
    if not anomalous.any():
        return every_fifth(strata(samples))
    found = anomalous.copy()
    found[np.flatnonzero(~anomalous)[::5]] = True
    return found


def every_fifth(keys: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return True for every fifth sample in order of its key."""
    test = np.zeros(len(keys), dtype=bool)
    test[np.argsort(keys, kind="stable")[::5]] = True
    return test
