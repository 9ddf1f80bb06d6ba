"""Reducers: functions that replace the weighted mean of a round's updates.

A reducer is one module of this package and one line of `REDUCERS`; `reducer` defines its interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moonfed.registry import Registry

if TYPE_CHECKING:
    from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer

_PACKAGE = "moonfed.coordinator.aggregation.robust.reducers"
REDUCERS: Registry[Reducer] = Registry(
    "reducer",
    "moonfed.reducers",
    f"{_PACKAGE}.reducer:Reducer",
    {
        "mean": f"{_PACKAGE}.mean:MeanReducer",
        "median": f"{_PACKAGE}.median:Median",
        "trimmed_mean": f"{_PACKAGE}.trimmed_mean:TrimmedMean",
        "multi_krum": f"{_PACKAGE}.multi_krum:MultiKrum",
        "geometric_median": f"{_PACKAGE}.geometric_median:GeometricMedian",
    },
)
