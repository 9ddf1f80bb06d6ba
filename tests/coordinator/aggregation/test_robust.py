"""Robust aggregation against numpy on whole models in float64; each reference is written in another way."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies

from moonfed.coordinator.aggregation.robust.config import RobustSettings
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer
from moonfed.coordinator.aggregation.robust.weight_cap import cap_weights
from moonfed.errors import InvalidInput
from moonfed.registry import find_problem
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from moonfed.tensors import TensorSpec
from tests.support.aggregation_rounds import PARAMETERS, SIZE, Rounds, make_manifest, robust_reducers, robust_settings

F64 = npt.NDArray[np.float64]
START = 0.5
SLICES = [5, 50, 1 << 20]  # elements: of one device's coordinate, of a few, of everything
ROBUST = robust_reducers(byzantine=2)
NAMES = [robust.reducer.name for robust in ROBUST]


def rounds(
    directory: Path, robust: RobustSettings, rule: ServerRule | None = None, slice_elements: int = 1 << 20
) -> Rounds:
    manifest = make_manifest(server_rule=rule or MeanRule())
    start = np.full(SIZE, START, np.float32)
    return Rounds(directory, manifest, start, slice_elements=slice_elements, robust=robust)


def updates(seed: int, devices: int, spread: float = 1.0) -> F64:
    """Models near a common one, as stored in float32 files."""
    chance = np.random.default_rng(seed)
    models = START + chance.normal(size=SIZE) + spread * chance.normal(size=(devices, SIZE))
    return models.astype(np.float32).astype(np.float64)


def assert_close(found: F64, expected: F64, rtol: float = 2e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)  # files hold float32


def by_kind(expected: Any) -> F64:  # noqa: ANN401 - a function of some columns
    """Applies a reference to the parameters and to the statistics, each on their own."""
    result = np.empty(SIZE)
    for columns in (PARAMETERS, ~PARAMETERS):
        result[columns] = expected(columns)
    return result


# Reducers


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
@pytest.mark.parametrize("slice_elements", SLICES)
def test_the_median_is_taken_in_every_coordinate(tmp_path: Path, devices: int, slice_elements: int) -> None:
    models = updates(devices, devices)
    played = rounds(tmp_path, robust_settings(reducer="median"), slice_elements=slice_elements)
    found = played.next(models, list(range(1, devices + 1)))
    assert_close(found, np.median(models, axis=0))


@pytest.mark.parametrize(("devices", "f"), [(3, 1), (7, 2), (7, 3), (9, 1)])
@pytest.mark.parametrize("slice_elements", SLICES)
def test_the_trimmed_mean_leaves_out_both_ends(tmp_path: Path, devices: int, f: int, slice_elements: int) -> None:
    models = updates(devices, devices)
    played = rounds(tmp_path, robust_settings(reducer="trimmed_mean", byzantine=f), slice_elements=slice_elements)
    found = played.next(models, [1000, *[1] * (devices - 1)])
    expected = [sum(sorted(column)[f:-f]) / (devices - 2 * f) for column in models.T.tolist()]
    assert_close(found, np.array(expected))


@pytest.mark.parametrize(("devices", "share", "f"), [(5, 0.2, 1), (9, 0.2, 1), (10, 0.2, 2), (10, 0.4, 4)])
def test_a_trimmed_share_is_of_the_rounds_devices(tmp_path: Path, devices: int, share: float, f: int) -> None:
    models = updates(devices, devices)
    found = rounds(tmp_path, robust_settings("trimmed_mean", share=share)).next(models, [1] * devices)
    expected = [sum(sorted(column)[f:-f]) / (devices - 2 * f) for column in models.T.tolist()]
    assert_close(found, np.array(expected))


def test_the_geometric_median_stops_after_its_iterations(tmp_path: Path) -> None:
    models = updates(3, 5)
    one, few, many = (
        rounds(tmp_path / str(count), robust_settings("geometric_median", iterations=count)).next(models, [1] * 5)
        for count in (1, 3, 1000)
    )
    assert np.linalg.norm(few - many) < np.linalg.norm(one - many)


# The registry


@pytest.mark.parametrize("name", REDUCERS)
def test_a_reducers_entry_is_complete(name: str) -> None:
    assert find_problem(name, REDUCERS[name], Reducer) == ""


def test_no_two_reducers_give_the_same_model(tmp_path: Path) -> None:
    """One that falls through to the mean, or to another, would."""
    models, settings = updates(4, 9), [robust_settings(), *ROBUST]
    found = [rounds(tmp_path / robust.reducer.name, robust).next(models, [1] * 9) for robust in settings]
    for number, model in enumerate(found):
        for other in found[number + 1 :]:
            assert np.abs(model - other)[PARAMETERS].max() > 1e-3
            assert np.abs(model - other)[~PARAMETERS].max() > 1e-3


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


def test_of_updates_with_equal_scores_multi_krum_takes_the_first(tmp_path: Path) -> None:
    models = np.repeat(updates(1, 1), 5, axis=0)
    played = rounds(tmp_path, robust_settings(reducer="multi_krum", byzantine=1))
    assert_close(played.next(models, [1] * 5), models[0])
    assert {told.device for told in played.incidents} == {"cam-4"}


def sum_of_distances(point: F64, models: F64, weights: F64) -> float:
    return float(weights @ np.linalg.norm(models - point, axis=1))


@pytest.mark.parametrize("devices", [3, 6, 10])
@pytest.mark.parametrize("slice_elements", SLICES)
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_nothing_is_nearer_than_the_geometric_median(
    tmp_path: Path, devices: int, slice_elements: int, weighting: str
) -> None:
    """At the geometric median, the weighted unit vectors to the updates cancel out."""
    models, samples = updates(devices, devices), [10 + number for number in range(devices)]
    rule = MeanRule(weighting="samples") if weighting == "samples" else MeanRule(weighting="uniform")
    found = rounds(tmp_path, robust_settings(reducer="geometric_median"), rule, slice_elements).next(models, samples)
    weights = np.array(samples if weighting == "samples" else [1] * devices, np.float64)
    weights /= weights.sum()
    for columns in (PARAMETERS, ~PARAMETERS):
        point, rows = found[columns], models[:, columns]
        units = (point - rows) / np.linalg.norm(point - rows, axis=1)[:, None]
        assert np.linalg.norm(weights @ units) < 1e-4
        least = sum_of_distances(point, rows, weights)
        assert least < sum_of_distances(weights @ rows, rows, weights)
        assert least < sum_of_distances(np.median(rows, axis=0), rows, weights)


def test_the_geometric_median_is_where_a_majority_agrees(tmp_path: Path) -> None:
    """If more than half of the weight is in one point, no other has a smaller sum of distances."""
    models = updates(3, 5)
    models[:3] = models[0]
    assert_close(
        rounds(tmp_path, robust_settings(reducer="geometric_median")).next(models, [1] * 5), models[0], rtol=1e-5
    )


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
def test_updates_that_agree_are_kept_and_nobody_is_reported(tmp_path: Path, robust: RobustSettings) -> None:
    models = np.repeat(updates(1, 1), 7, axis=0)
    played = rounds(tmp_path, robust)
    assert_close(played.next(models, [3, 1, 4, 1, 5, 9, 2]), models[0])
    if robust.reducer.name != "multi_krum":  # which leaves out as many as it is told to
        assert played.incidents == ()


POISONS: dict[str, Callable[[F64], F64]] = {
    "scaled": lambda models: START + 1000 * (models - START),
    "flipped": lambda models: START - 1000 * (models - START),
    "immense": lambda models: np.full_like(models, 3e38),
    "opposite": lambda models: np.stack([np.full(SIZE, 3e38), np.full(SIZE, -3e38)])[: len(models)],
}


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("devices", [7, 10])
def test_two_poisoned_updates_do_not_move_a_robust_reducer(
    tmp_path: Path, robust: RobustSettings, poison: str, devices: int
) -> None:
    honest = updates(devices, devices, spread=0.1)
    models = honest.copy()
    models[[1, 4]] = POISONS[poison](honest[[1, 4]])
    played = rounds(tmp_path, robust)
    found = played.next(models, [100] * devices)
    centre = np.delete(honest, [1, 4], axis=0).mean(axis=0)
    farthest = np.linalg.norm(honest - centre, axis=1).max()
    assert np.linalg.norm(found - centre) < farthest, "no farther from the honest mean than an honest device"
    assert {"cam-1", "cam-4"} <= {told.device for told in played.incidents}
    without = rounds(tmp_path / "mean", robust_settings()).next(models, [100] * devices)
    assert np.linalg.norm(without - centre) > 20 * farthest or poison == "opposite"


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
def test_poisoned_statistics_with_honest_parameters_have_no_effect(tmp_path: Path, robust: RobustSettings) -> None:
    """Parameters a thousand times as long would hide them, were both measured together."""
    honest = updates(5, 7, spread=0.1)
    honest[:, PARAMETERS] *= 1000
    models = honest.copy()
    models[2, ~PARAMETERS] = -50.0
    played = rounds(tmp_path, robust)
    found = played.next(models, [100] * 7)
    centre = np.delete(honest, 2, axis=0).mean(axis=0)
    assert np.abs((found - centre)[~PARAMETERS]).max() < 0.5
    assert any(told.device == "cam-2" and "statistics" in told.description for told in played.incidents)


def test_a_server_rule_uses_the_reducers_result(tmp_path: Path) -> None:
    models = updates(9, 5)
    played = rounds(tmp_path, robust_settings(reducer="median"), FedAvgM(server_momentum=0.5))
    played.next(models, [1] * 5)
    second = updates(10, 5)
    found = played.next(second, [1] * 5)
    medians = [np.median(models, axis=0), np.median(second, axis=0)]
    first = medians[0]
    moved = first + 0.5 * (first - START) + (medians[1] - first)
    assert_close(found, np.where(PARAMETERS, moved, medians[1]))


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
def test_too_few_updates_make_no_model(tmp_path: Path, robust: RobustSettings) -> None:
    few = robust.build_reducer().updates_needed - 1
    with pytest.raises(
        InvalidInput, match=f"the round has {few} updates; reducer '{robust.reducer.name}' needs {few + 1}"
    ):
        rounds(tmp_path, robust).next(updates(1, few), [1] * few)


# Norm clip


def clipped_by_hand(models: F64, robust: RobustSettings) -> F64:
    changes = models - START
    lengths = {
        "parameters": np.linalg.norm(changes[:, PARAMETERS], axis=1),
        "statistics": np.linalg.norm(changes[:, ~PARAMETERS], axis=1),
    }
    result = models.copy()
    for device in range(len(models)):
        bounds = [robust.clip_norm or np.inf]
        if robust.clip_factor:
            bounds.append(robust.clip_factor * np.median(lengths["parameters"]))
        of_parameters = min(1.0, min(bounds) / lengths["parameters"][device])
        of_statistics = of_parameters
        if robust.clip_factor:
            usual = np.median(lengths["statistics"])
            of_statistics = min(of_statistics, robust.clip_factor * usual / lengths["statistics"][device])
        scale = np.where(PARAMETERS, of_parameters, of_statistics)
        result[device] = START + scale * changes[device]
    return result


@pytest.mark.parametrize(
    "robust",
    [
        robust_settings(clip_norm=9.0),
        robust_settings(clip_factor=1.0),
        robust_settings(clip_factor=0.5),
        robust_settings(clip_norm=3, clip_factor=2),
    ],
)
@pytest.mark.parametrize("slice_elements", SLICES)
def test_a_change_that_is_too_long_is_scaled_down(tmp_path: Path, robust: RobustSettings, slice_elements: int) -> None:
    lengths = np.array([0.2, 0.9, 1.0, 1.1, 6.0])
    models = (START + lengths[:, None] * (updates(2, 5) - START)).astype(np.float32).astype(np.float64)
    samples = [5, 1, 2, 3, 4]
    played = rounds(tmp_path, robust, slice_elements=slice_elements)
    found = played.next(models, samples)
    expected = clipped_by_hand(models, robust)
    assert not np.allclose(expected, models)
    assert_close(found, np.average(expected, axis=0, weights=samples))


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
@pytest.mark.parametrize("slice_elements", SLICES)
def test_reducers_see_the_changes_as_they_were_clipped(
    tmp_path: Path, robust: RobustSettings, slice_elements: int
) -> None:
    lengths = np.array([0.5, 0.9, 1.0, 1.1, 2.0, 8.0, 30.0])
    models = (START + lengths[:, None] * (updates(6, 7) - START)).astype(np.float32).astype(np.float64)
    clipping = replace(robust, clip_factor=1.2)
    found = rounds(tmp_path, clipping, slice_elements=slice_elements).next(models, [1] * 7)
    by_hand = clipped_by_hand(models, clipping)
    # the same reducer on files that hold the clipped models
    plain = rounds(tmp_path / "plain", robust).next(by_hand, [1] * 7)
    assert_close(found, plain, rtol=1e-5)
    unclipped = rounds(tmp_path / "un", robust).next(models, [1] * 7)
    assert np.abs(found - unclipped).max() > 1e-2


def test_clipped_devices_are_reported_with_the_figures(tmp_path: Path) -> None:
    models = np.full((3, SIZE), START)
    models[1, PARAMETERS] += 10.0  # 86 parameters: the norm is 10·√86
    played = rounds(tmp_path, robust_settings(clip_norm=2.0))
    found = played.next(models, [1, 1, 2])
    np.testing.assert_allclose(found[PARAMETERS], START + 2 / np.sqrt(86) / 4, rtol=1e-6)
    (incident,) = played.incidents
    assert incident.device == "cam-1"
    assert incident.description == "the change of its parameters was scaled down from norm 92.74 to 2"


def test_the_hundred_most_severe_incidents_of_a_round_are_kept(tmp_path: Path) -> None:
    lengths = 1.0 + np.arange(130) / 100
    lengths[7] = 50.0
    models = np.full((130, SIZE), START)
    models[:, PARAMETERS] += lengths[:, None]
    played = rounds(tmp_path, robust_settings(clip_norm=0.1))
    played.next(models, [1] * 130)
    kept = {int(told.device.removeprefix("cam-")) for told in played.incidents}
    assert len(played.incidents) == 100
    assert kept == {7, *range(31, 130)}


def test_a_variance_is_never_clipped_below_zero(tmp_path: Path) -> None:
    """A clipped statistic is between the round's initial value and the device's."""
    models = np.full((5, SIZE), START)
    models[:, 96:107] = 1e-3
    models[4] = START + 1e6
    played = rounds(tmp_path, robust_settings(clip_norm=1e-3, clip_factor=1.0))
    found = played.next(models, [1] * 5)
    assert (found[96:107] > 0).all()


# Weight cap


@given(strategies.lists(strategies.integers(1, 10_000_000), min_size=1, max_size=30), strategies.floats(0.01, 1))
def test_no_device_weighs_more_than_the_cap(samples: list[int], cap: float) -> None:
    """Against the naive way: cut to the cap of the sum, again and again, until nothing changes."""
    found = np.array(cap_weights(samples, cap))
    if cap * len(samples) <= 1:
        np.testing.assert_array_equal(found, found[0])
        return
    naive = np.array(samples, np.float64)
    for _ in range(20_000):
        cut = np.minimum(naive, cap * naive.sum())
        if np.allclose(cut, naive, rtol=1e-13, atol=0):
            break
        naive = cut
    if cap * len(samples) > 1.001:  # nearer to 1 the naive way creeps
        np.testing.assert_allclose(found / found.sum(), naive / naive.sum(), rtol=1e-5)
    assert found.max() <= cap * found.sum() * (1 + 1e-9)
    assert (found <= np.array(samples)).all()
    below = found < found.max()
    np.testing.assert_array_equal(found[below], np.array(samples)[below])


def test_a_device_that_claims_ten_million_samples_is_capped(tmp_path: Path) -> None:
    """Fault 12."""
    models = np.concatenate([np.zeros((9, SIZE)), np.ones((1, SIZE))])
    samples = [100] * 9 + [10_000_000]
    assert rounds(tmp_path, robust_settings()).next(models, samples).min() > 0.999
    played = rounds(tmp_path / "capped", robust_settings(weight_cap=0.2))
    np.testing.assert_allclose(played.next(models, samples), 0.2, rtol=1e-6)
    assert played.incidents == (), "a large honest device has done nothing"
    few = rounds(tmp_path / "few", robust_settings(weight_cap=0.2)).next(models[-3:], samples[-3:])
    np.testing.assert_allclose(few, 1 / 3, rtol=1e-6)


def test_the_geometric_median_weighs_by_capped_weights(tmp_path: Path) -> None:
    """Nine tenths of the samples are one device's: its model is the geometric median, unless it is capped."""
    models, samples = updates(8, 5), [1, 1, 1, 1, 36]
    uncapped = rounds(tmp_path / "a", robust_settings(reducer="geometric_median")).next(models, samples)
    assert_close(uncapped, models[4], rtol=1e-5)
    capped_ = rounds(tmp_path / "b", robust_settings(reducer="geometric_median", weight_cap=0.2)).next(models, samples)
    alike = rounds(tmp_path / "c", robust_settings(reducer="geometric_median")).next(models, [1] * 5)
    assert_close(capped_, alike)


# Memory


@pytest.mark.parametrize(
    "robust", [robust_settings(), robust_settings(clip_factor=1.0), *ROBUST], ids=["mean", "clip", *NAMES]
)
def test_memory_does_not_grow_with_the_fleet(tmp_path: Path, robust: RobustSettings) -> None:
    size, slice_elements = 200_000, 1 << 15
    specs = (TensorSpec("a", (size,), "parameter"), TensorSpec("b", (100,), "statistic"))
    chance, peaks = np.random.default_rng(0), []
    for devices in (10, 40):
        models = chance.normal(size=(devices, size + 100)).astype(np.float32)
        peaks.append(peak_of_a_round(tmp_path / str(devices), specs, models, robust, slice_elements))
    assert peaks[1] < 1.25 * peaks[0]
    assert max(peaks) < 6 * 8 * slice_elements + 200_000, "a few slices in float64, not one model of a device"


def peak_of_a_round(
    directory: Path,
    specs: tuple[TensorSpec, ...],
    models: npt.NDArray[np.float32],
    robust: RobustSettings,
    elements: int,
) -> int:
    manifest = make_manifest(tensors=specs)
    played = Rounds(directory, manifest, models[0], slice_elements=elements, robust=robust)
    closed = played.closed(models, [1] * len(models))
    tracemalloc.start()
    try:
        played.close(closed)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Settings


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"weight_cap": -0.1}, "weight_cap is -0.1; it must be a share from 0 to 1"),
        ({"weight_cap": 1.5}, "weight_cap is 1.5"),
        ({"weight_cap": float("nan")}, "weight_cap is nan"),
        ({"clip_norm": -1.0}, "clip_norm is -1.0; it must be a positive number, or 0"),
        ({"clip_factor": float("inf")}, "clip_factor is inf"),
        ({"reducer": "krum"}, f"reducer is 'krum'; it must be one of {', '.join(REDUCERS)}$"),
        ({"reducer": "median", "byzantine": -1}, "byzantine is -1; it must be a whole number from 0"),
        ({"reducer": "median", "byzantine": 1.5}, "byzantine is 1.5; it must be a whole number"),
        ({"byzantine": 1}, r"reducer setting 'byzantine' \(= 1\) is unknown; mean has none"),
        ({"reducer": "multi_krum", "share": 0.2}, "reducer setting 'share' .* is unknown; multi_krum has byzantine"),
        ({"reducer": "trimmed_mean", "byzantine": 1, "share": 0.2}, "byzantine is 1 and share is 0.2 with"),
        ({"reducer": "trimmed_mean", "share": 0.5}, "share is 0.5; it must be a number from 0, below 0.5"),
        ({"reducer": "geometric_median", "iterations": 0}, "iterations is 0; it must be a whole number from 1"),
        ({"reducer": "multi_krum"}, "byzantine is 0 with reducer 'multi_krum'; it must be at least 1"),
        ({"reducer": "trimmed_mean"}, "byzantine is 0 and share is 0 with reducer 'trimmed_mean'"),
        ({"reducer": "median", "weight_cap": 0.2}, "weight_cap is 0.2 with reducer 'median'.* all devices equally"),
    ],
)
def test_an_invalid_setting_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        robust_settings(**fields).build_reducer()


@pytest.mark.parametrize("reducer", ["median", "geometric_median"])
@pytest.mark.parametrize("f", [0, 1, 3])
def test_a_majority_must_be_honest(reducer: Any, f: int) -> None:  # noqa: ANN401
    assert robust_settings(reducer=reducer, byzantine=f).build_reducer().updates_needed == 2 * f + 1
