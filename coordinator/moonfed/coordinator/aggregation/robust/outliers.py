"""Outliers among a round's updates: those much farther from a reducer's result than the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moonfed.server_rules.server_rule import Float64Array

FAR = 3.0  # times as far from the reducer's result as the median device


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """One of N updates, the figure that a reducer found about it, and the median of all updates' figures."""

    position: int
    figure: float
    median: float


def far_outliers(distances: Float64Array) -> list[Outlier]:
    """Return the updates that are much farther from a reducer's result than the median one; distances are [N]."""
    median = float(np.median(distances))
    return [
        Outlier(position=i, figure=float(distance), median=median)
        for i, distance in enumerate(distances)
        if distance > FAR * median
    ]
