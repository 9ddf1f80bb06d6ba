"""A control variate moves by its devices' share, and is kept together with a server rule's memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.server_rules.fedavgm import FedAvgM
from tests.support.aggregation_rounds import (
    PARAMETER_SPECS,
    SIZE,
    Rounds,
    scaffold,
)


@pytest.mark.parametrize("slice_elements", [5, 1 << 20])
def test_the_variate_moves_by_the_counted_devices_share_of_the_run(tmp_path: Path, slice_elements: int) -> None:
    """c after two rounds is the sum of all changes over N, whatever the samples; here |S| is 3, then 2, of N = 8."""
    played = Rounds(tmp_path, scaffold(), np.zeros(SIZE), enrolled=8, slice_elements=slice_elements)
    chance = np.random.default_rng(1)
    first, second = chance.normal(size=(3, 86)), chance.normal(size=(2, 86))
    played.next(np.ones((3, SIZE)), [1, 100, 1000], variate_change=(first, PARAMETER_SPECS))
    np.testing.assert_allclose(played.memory("variate", PARAMETER_SPECS), first.sum(0) / 8, rtol=1e-5, atol=1e-7)
    played.next(np.ones((2, SIZE)), [5, 1], variate_change=(second, PARAMETER_SPECS))
    expected = (first.sum(0) + second.sum(0)) / 8
    np.testing.assert_allclose(played.memory("variate", PARAMETER_SPECS), expected, rtol=1e-5, atol=1e-6)


def test_a_server_rule_and_the_variate_are_kept_together(tmp_path: Path) -> None:
    played = Rounds(tmp_path, scaffold(server_rule=FedAvgM()), np.zeros(SIZE))
    model = played.next(np.ones((2, SIZE)), [1, 1], variate_change=(np.ones((2, 86)), PARAMETER_SPECS))
    assert set(played.state) == {"model", "momentum", "variate"}
    np.testing.assert_array_equal(model, 1)
    np.testing.assert_array_equal(played.memory("variate", PARAMETER_SPECS), 1)
