"""Subsets of a data set: a given number of samples, preserving the shares of classes and other groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moonfed.data.data_set import Labels
from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import SplitDataSet
from moonfed.experiments.partition import Indices
from moonfed.experiments.strata import strata


def subset(data: SplitDataSet, *, train_samples: int, test_samples: int, seed: int) -> SplitDataSet:
    """Draw that many samples, stratified; 0 means all. InvalidInput if there are fewer."""
    train = _stratified("train_samples", strata(data.train), train_samples, seed)
    test = _stratified("test_samples", strata(data.test), test_samples, seed)
    return replace(data, train=data.train.take(train), test=data.test.take(test))


def _stratified(name: str, labels: Labels, count: int, seed: int) -> Indices:
    """Return `count` indices in order, preserving class shares, which are rounded to the right sum."""
    if count > len(labels):
        raise InvalidInput(field=name, value=count, rest=f"; the data set has {len(labels)}")
    if count in (0, len(labels)):
        return np.arange(len(labels))
    generator = np.random.default_rng(seed)
    members = [generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    shares = np.asarray([len(indices) * count / len(labels) for indices in members])
    takes = np.floor(shares).astype(np.int64)
    takes[np.argsort(takes - shares, kind="stable")[: count - takes.sum()]] += 1  # the largest remainders
    return np.sort(np.concatenate([indices[:take] for indices, take in zip(members, takes, strict=True)]))
