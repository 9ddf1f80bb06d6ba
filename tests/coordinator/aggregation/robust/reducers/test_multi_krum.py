"""Multi-Krum, compared with a computation pair by pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.aggregation_rounds import PARAMETERS, SIZE, robust_settings
from tests.support.robust_rounds import F64, SLICES, assert_close, rounds, updates


def by_kind(expected: Any) -> F64:
    """Apply a reference to parameters and statistics separately."""
    result = np.empty(SIZE)
    for columns in (PARAMETERS, ~PARAMETERS):
        result[columns] = expected(columns)
    return result


def krum_by_hand(models: F64, f: int) -> tuple[F64, set[int]]:
    """Compute Multi-Krum pair by pair; return the mean and the dropped devices."""
    n = len(models)
    scores = []
    for i in range(n):
        others = sorted(float(((models[i] - models[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(others[: n - f - 2]))
    order = sorted(range(n), key=lambda i: (scores[i], i))
    mean: F64 = models[order[: n - f]].mean(axis=0)
    return mean, set(order[n - f :])


@pytest.mark.parametrize(("devices", "f"), [(5, 1), (7, 2), (9, 2), (12, 3)])
@pytest.mark.parametrize("slice_elements", SLICES)
def test_multi_krum_averages_those_near_their_neighbours(
    tmp_path: Path, devices: int, f: int, slice_elements: int
) -> None:
    models = updates(devices + f, devices)
    played = rounds(tmp_path, robust_settings(reducer="multi_krum", byzantine=f), slice_elements=slice_elements)
    found = played.next(models, list(range(1, devices + 1)))
    assert_close(found, by_kind(lambda columns: krum_by_hand(models[:, columns], f)[0]))
    left_out = [krum_by_hand(models[:, columns], f)[1] for columns in (PARAMETERS, ~PARAMETERS)]
    told = [
        {
            int(told.device.removeprefix("cam-"))
            for told in played.incidents
            if f"its {what} were left out" in told.description
        }
        for what in ("parameters", "statistics")
    ]
    assert told == left_out


def test_multi_krum_breaks_ties_by_order(tmp_path: Path) -> None:
    models = np.repeat(updates(1, 1), 5, axis=0)
    played = rounds(tmp_path, robust_settings(reducer="multi_krum", byzantine=1))
    assert_close(played.next(models, [1] * 5), models[0])
    assert {told.device for told in played.incidents} == {"cam-4"}
