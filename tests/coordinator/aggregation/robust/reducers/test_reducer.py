"""The number of updates that every reducer needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.errors import InvalidInput
from tests.support.aggregation_rounds import robust_settings
from tests.support.refusals import refused
from tests.support.robust_rounds import NAMES, ROBUST, rounds, updates


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
def test_too_few_updates_make_no_model(tmp_path: Path, robust: RunSettings) -> None:
    few = build_reducer(robust).updates_needed - 1
    with refused(InvalidInput, "updates", few):
        rounds(tmp_path, robust).next(updates(1, few), [1] * few)


@pytest.mark.parametrize("reducer", ["median", "geometric_median"])
@pytest.mark.parametrize("f", [0, 1, 3])
def test_a_majority_must_be_honest(reducer: Any, f: int) -> None:
    assert build_reducer(robust_settings(reducer=reducer, byzantine=f)).updates_needed == 2 * f + 1
