"""Buffered aggregation against numbers computed by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.aggregation.staleness import discount, discounted, require_bufferable
from moonfed.coordinator.draw import Draw
from moonfed.errors import InvalidInput
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.fednova import FedNova
from moonfed.server_rules.mean import MeanRule
from tests.support import coordinator
from tests.support.coordinator import SCAFFOLD, SIZE, make_bundle, model_bytes, model_values
from tests.support.refusals import refused

PARAMETERS = 15  # of the 23 elements; the rest are statistics


def vector(parameter: float, statistic: float) -> np.ndarray[Any, Any]:
    return np.concatenate([np.full(PARAMETERS, parameter), np.full(SIZE - PARAMETERS, statistic)])


def write(path: Path, parameter: float, statistic: float) -> Path:
    path.write_bytes(model_bytes(vector(parameter, statistic)))
    return path


def buffered_round(tmp_path: Path, **fields: Any) -> np.ndarray[Any, Any]:
    """Global models w0 = (1, 4), w3 = (3, 8), as parameter and statistic. Round 4 closes with two updates.

    a began with w3 and made (5, 6) of it with 10 samples; b began with w0 and made (9, 2) of it with 30: staleness 3.
    """
    newest, old = write(tmp_path / "w3", 3.0, 8.0), write(tmp_path / "w0", 1.0, 4.0)
    manifest = make_bundle(**fields).manifest
    updates = [
        (Contribution(device="a", files={"model": write(tmp_path / "a", 5.0, 6.0)}, samples=10, steps=1), 0, newest),
        (Contribution(device="b", files={"model": write(tmp_path / "b", 9.0, 2.0)}, samples=30, steps=1), 3, old),
    ]
    contributions = tuple(
        discounted(
            contribution,
            staleness,
            manifest,
            initial_model=base,
            newest=newest,
            target=tmp_path / f"from-{contribution.device}",
            slice_elements=4,
        )
        for contribution, staleness, base in updates
    )
    closed = ClosedRound(
        manifest=manifest,
        round=4,
        draw=Draw(bytes(32)),
        enrolled=2,
        global_state={"model": newest},
        contributions=contributions,
        cohort=2,
    )
    (tmp_path / "reduced").mkdir()
    return model_values(aggregate(closed, tmp_path / "reduced").files["model"].read_bytes())


def test_staleness_discounts_by_its_root() -> None:
    assert [discount(0), discount(3), discount(8)] == [1.0, 0.5, pytest.approx(1 / 3)]


def test_changes_count_by_samples_and_staleness(tmp_path: Path) -> None:
    """Parameters 3 + (10·1·(5 - 3) + 30·½·(9 - 1))/40, statistics 8 + (10·1·(6 - 8) + 30·½·(2 - 8))/40."""
    result = buffered_round(tmp_path, server_rule=MeanRule(weighting="samples"))
    np.testing.assert_allclose(result, vector(3 + 140 / 40, 8 - 110 / 40), rtol=1e-6)


def test_with_uniform_weights_it_is_the_papers_mean_over_the_buffer(tmp_path: Path) -> None:
    """Parameters 3 + (2 + ½·8)/2, statistics 8 + (-2 + ½·(-6))/2."""
    result = buffered_round(tmp_path, server_rule=MeanRule(weighting="uniform"))
    np.testing.assert_allclose(result, vector(6.0, 5.5), rtol=1e-6)


def test_a_server_rule_takes_the_mean_change_as_that_of_any_round(tmp_path: Path) -> None:
    """In the first round, damped momentum ½ moves half of the mean change, 3; statistics have no momentum."""
    rule = FedAvgM(server_momentum=0.5, damped=True, weighting="uniform")
    result = buffered_round(tmp_path, server_rule=rule)
    np.testing.assert_allclose(result, vector(3 + 1.5, 5.5), rtol=1e-6)


def test_fresh_updates_alone_are_a_synchronous_rounds(tmp_path: Path) -> None:
    newest = write(tmp_path / "w", 3.0, 8.0)
    contribution = Contribution(device="a", files={"model": write(tmp_path / "a", 5.0, 6.0)}, samples=1, steps=1)
    manifest, target = make_bundle().manifest, tmp_path / "b"
    same = discounted(contribution, 0, manifest, initial_model=newest, newest=newest, target=target)
    assert same is contribution
    assert not target.exists()


def test_a_variance_stays_positive_however_stale_updates_are(tmp_path: Path) -> None:
    """If statistics moved by the change since the old model, like parameters, this one would end at 1 - 8/√2."""
    newest, old = write(tmp_path / "w", 0.0, 1.0), write(tmp_path / "old", 0.0, 9.0)
    contribution = Contribution(device="a", files={"model": write(tmp_path / "a", 0.0, 1.0)}, samples=1, steps=1)
    manifest, target = make_bundle().manifest, tmp_path / "b"
    done = discounted(contribution, 1, manifest, initial_model=old, newest=newest, target=target)
    assert model_values(done.files["model"].read_bytes())[PARAMETERS:].min() == pytest.approx(1.0)
    assert 1 - 8 / math.sqrt(2) < 0


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (SCAFFOLD, ("method", "scaffold")),
        ({"server_rule": FedNova()}, ("server_rule", "fednova")),
    ],
)
def test_methods_whose_updates_belong_to_one_round_are_rejected(
    fields: dict[str, Any], named: tuple[str, object]
) -> None:
    with refused(InvalidInput, *named):
        require_bufferable(coordinator.make_bundle(**fields).manifest)
    require_bufferable(coordinator.make_bundle(method="moon", previous_models=1).manifest)
