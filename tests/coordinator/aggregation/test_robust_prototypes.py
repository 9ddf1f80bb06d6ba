"""Robust aggregation of class means, against numpy class by class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.target import class_target
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.incident import Incident
from tests.support.aggregation_rounds import SIZE, Rounds, make_manifest, robust_reducers, robust_settings

WIDTH = 6
CLASS_MEANS = (TensorSpec("mask", (3,), "statistic"), TensorSpec("means", (3, WIDTH), "statistic"))
PROTOTYPES = (TensorSpec("present", (3,), "statistic"), TensorSpec("prototypes", (3, WIDTH), "statistic"))
F64 = npt.NDArray[np.float64]
ROBUST = robust_reducers(byzantine=1)
NAMES = [robust.reducer for robust in ROBUST]


def played(directory: Path, robust: RunSettings, drawn: int = 0) -> Rounds:
    manifest = make_manifest(
        method="fedssc",
        target=class_target(("cat", "dog", "fox")),
        prototype_devices=drawn,
        downlink={"prototypes": PROTOTYPES},
        uplink={"class_means": CLASS_MEANS},
    )
    return Rounds(directory, manifest, np.zeros(SIZE), robust=robust)


def prototypes(rounds: Rounds, means: F64, shares: npt.NDArray[np.bool_] | None = None) -> tuple[list[int], F64]:
    """Return the next prototypes [3, D] and which classes have one, from means [N, 3, D] and sharers [N, 3]."""
    shared = np.ones(means.shape[:2], np.bool_) if shares is None else shares
    rows = np.concatenate([1.0 * shared, (means * shared[:, :, None]).reshape(len(means), -1)], axis=1)
    rounds.next(np.zeros((len(means), SIZE)), [1] * len(means), class_means=(rows, CLASS_MEANS))
    values = rounds.memory("prototypes", PROTOTYPES)
    return [int(value) for value in values[:3]], values[3:].reshape(3, WIDTH)


def honest(devices: int, spread: float = 0.1) -> F64:
    """Means near a common one, [N, 3, D], as stored in float32 files."""
    chance = np.random.default_rng(devices)
    means = chance.normal(size=(3, WIDTH)) + spread * chance.normal(size=(devices, 3, WIDTH))
    return means.astype(np.float32).astype(np.float64)


def test_each_class_is_reduced_over_those_that_share_it(tmp_path: Path) -> None:
    means, shares = honest(7, spread=1.0), np.ones((7, 3), np.bool_)
    shares[[1, 5], 1] = False
    present, found = prototypes(played(tmp_path, robust_settings(reducer="median")), means, shares)
    assert present == [1, 1, 1]
    np.testing.assert_allclose(found[0], np.median(means[:, 0], axis=0), rtol=1e-6)
    np.testing.assert_allclose(found[1], np.median(means[[0, 2, 3, 4, 6], 1], axis=0), rtol=1e-6)


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
@pytest.mark.parametrize("poison", [lambda mean: -1000 * mean, lambda mean: np.full_like(mean, 3e38)])
def test_a_poisoned_class_mean_does_not_move_the_prototype_and_is_reported(
    tmp_path: Path, robust: RunSettings, poison: object
) -> None:
    assert callable(poison)
    means = honest(7)
    centre, farthest = means[:6].mean(axis=0), np.linalg.norm(means - means[:6].mean(axis=0), axis=2).max()
    means[6, 1:] = poison(means[6, 1:])
    rounds = played(tmp_path, robust)
    present, found = prototypes(rounds, means)
    assert present == [1, 1, 1]
    assert np.linalg.norm(found - centre, axis=1).max() <= farthest
    told = [
        incident.description
        for incident in rounds.incidents
        if incident.device == "cam-6" and "dog, fox" in incident.description
    ]
    assert len(told) == 1
    _, ruined = prototypes(played(tmp_path / "mean", robust_settings()), means)
    assert np.linalg.norm(ruined - centre, axis=1).max() > 100 * farthest


def test_a_class_that_too_few_share_for_the_reducer_has_no_prototype(tmp_path: Path) -> None:
    means, shares = honest(7), np.ones((7, 3), np.bool_)
    shares[4:, 0] = False  # four sharers; Multi-Krum against one device needs five
    shares[5:, 1] = False
    present, found = prototypes(played(tmp_path, robust_settings(reducer="multi_krum", byzantine=1)), means, shares)
    assert present == [0, 1, 1]
    np.testing.assert_array_equal(found[0], 0)


@pytest.mark.parametrize("drawn", [0, 1])
def test_a_class_mean_is_no_longer_than_a_multiple_of_the_median_of_its_sharers(tmp_path: Path, drawn: int) -> None:
    """This holds even if the only device drawn for a class is the malicious one."""
    means = honest(5)
    means[2] *= 1e4
    rounds = played(tmp_path, robust_settings(clip_factor=1.5), drawn)
    lengths = np.linalg.norm(means, axis=2)
    longest = 1.5 * np.median(lengths, axis=0)
    clipped = means * np.minimum(1, longest / lengths)[:, :, None]
    told = set[Incident]()
    for _ in range(12):
        _, found = prototypes(rounds, means)
        if drawn:
            ways = np.abs(found[None] - clipped).max(axis=2)  # of each device and class
            np.testing.assert_allclose(ways.min(axis=0), 0, atol=1e-5)
        else:
            np.testing.assert_allclose(found, clipped.mean(axis=0), rtol=1e-5, atol=1e-6)
        told.update(rounds.incidents)
    assert {incident.device for incident in told} == {"cam-2"}
    assert all("were scaled down" in incident.description for incident in told)


def test_the_incidents_of_many_classes_are_one_sentence(tmp_path: Path) -> None:
    means = honest(5)
    means[2] *= 1e4
    rounds = played(tmp_path, robust_settings(clip_factor=1.5))
    prototypes(rounds, means)
    assert [incident.description for incident in rounds.incidents] == [
        "its means of classes cat, dog, fox were scaled down"
    ]
