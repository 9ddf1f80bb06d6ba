"""Robust settings: an invalid one is named."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.errors import InvalidInput
from tests.support.aggregation_rounds import robust_settings


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight_cap": -0.1}, "weight_cap is -0.1"),
        ({"clip_norm": -1.0}, "clip_norm is -1.0"),
        ({"clip_factor": float("inf")}, "clip_factor is inf"),
        ({"reducer": "krum"}, f"reducer is 'krum'; it must be one of {', '.join(REDUCERS)}$"),
        ({"reducer": "median", "byzantine": -1}, "byzantine is -1"),
        ({"reducer": "median", "byzantine": 1.5}, "byzantine is 1.5"),
        ({"byzantine": 1}, r"reducer setting 'byzantine' \(= 1\) is unknown; mean has none"),
        ({"reducer": "multi_krum", "share": 0.2}, "reducer setting 'share' .* is unknown; multi_krum has byzantine"),
        ({"reducer": "trimmed_mean", "byzantine": 1, "share": 0.2}, "byzantine is 1 and share is 0.2 with"),
        ({"reducer": "trimmed_mean", "share": 0.5}, "share is 0.5"),
        ({"reducer": "geometric_median", "iterations": 0}, "iterations is 0"),
        ({"reducer": "multi_krum"}, "byzantine is 0 with reducer 'multi_krum'; it must be at least 1"),
        ({"reducer": "trimmed_mean"}, "byzantine is 0 and share is 0 with reducer 'trimmed_mean'"),
        ({"reducer": "median", "weight_cap": 1.5}, "weight_cap is 1.5 with reducer 'median'.* all devices equally"),
    ],
)
def test_an_invalid_setting_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        build_reducer(robust_settings(**fields))
