"""Partitions are complete, reproducible and as uneven as asked."""

import json
from itertools import product
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.partition import KINDS, Kind, PartitionSettings, class_counts, partition, write_partition
from tests.support.refusals import refused

LABELS = np.repeat(np.arange(10), 500)


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_goes_to_exactly_one_device(kind: Kind) -> None:
    parts = partition(LABELS, PartitionSettings(kind=kind, devices=7, beta=0.3))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(LABELS)))
    assert min(len(part) for part in parts) >= 10


def test_the_seed_decides_the_draw() -> None:
    def draw(seed: int) -> list[list[int]]:
        return [part.tolist() for part in partition(LABELS, PartitionSettings(devices=5, seed=seed))]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_iid_parts_are_even_in_size_and_classes() -> None:
    counts = class_counts(LABELS, partition(LABELS, PartitionSettings(kind="iid", devices=5)), 10)
    assert counts.sum(axis=1).tolist() == [1000] * 5
    assert (abs(counts - 100) < 45).all()  # five standard deviations of a fair draw


def test_a_smaller_beta_is_more_uneven() -> None:
    def spread(beta: float) -> float:
        seeds = range(10)
        draws = [partition(LABELS, PartitionSettings(devices=5, beta=beta, seed=seed)) for seed in seeds]
        return float(np.mean([class_counts(LABELS, parts, 10).std() for parts in draws]))

    assert spread(0.1) > 1.5 * spread(1.0) > 1.5 * 1.5 * spread(10.0)


@pytest.mark.parametrize("kind", ["dirichlet-equal", "dirichlet-mix"])
def test_equal_parties_are_of_one_size(kind: Kind) -> None:
    for beta, seed in product((0.01, 0.5, 100.0), range(20)):
        settings = PartitionSettings(kind=kind, devices=7, beta=beta, seed=seed)
        sizes = [len(part) for part in partition(LABELS, settings)]
        assert max(sizes) - min(sizes) <= 1


def mixes(kind: Kind, beta: float, devices: int = 10) -> list[npt.NDArray[np.float64]]:
    """Each device's shares of the classes, for 20 seeds."""
    draws = (partition(LABELS, PartitionSettings(kind=kind, devices=devices, beta=beta, seed=n)) for n in range(20))
    return [class_counts(LABELS, parts, 10) / np.asarray([len(part) for part in parts])[:, None] for parts in draws]


def test_equal_parties_are_as_uneven_as_moons_parties() -> None:
    """The mean total variation from even mixes at beta 0.5: about 0.50; drawing a mix per party is milder."""

    def variation(kind: Kind) -> float:
        return float(np.mean([abs(mix - 0.1).sum(axis=1) / 2 for mix in mixes(kind, 0.5)]))

    assert variation("dirichlet-moon") == pytest.approx(0.50, abs=0.02)
    assert variation("dirichlet-equal") == pytest.approx(0.50, abs=0.02)
    assert variation("dirichlet-mix") == pytest.approx(0.41, abs=0.02)


def test_mixes_are_as_uneven_as_dirichlet_draws() -> None:
    # A share of Dir(beta, …) over ten classes has variance 0.1 · 0.9 / (10 beta + 1); drawing adds 0.09 / 714.
    # That classes are used up evens the mixes out.
    assert 0.5 * 0.015 < np.var(mixes("dirichlet-mix", 0.5, devices=7)) < 0.015
    assert 0.5 * 0.09 / 1001 < np.var(mixes("dirichlet-mix", 100.0, devices=7)) < 0.09 / 1001 + 0.09 / 714


@pytest.mark.parametrize("kind", ["dirichlet-equal", "dirichlet-mix"])
def test_equal_parties_with_a_small_beta_share_the_remainder(kind: Kind) -> None:
    labels = np.repeat(np.arange(3), [100, 3, 17])
    parts = partition(labels, PartitionSettings(kind=kind, devices=4, beta=0.01))
    assert [len(part) for part in parts] == [30] * 4
    assert sorted(np.concatenate(parts).tolist()) == list(range(120))


@pytest.mark.parametrize(("classes", "samples", "spread"), [(10, 5000, 1165.40), (100, 500, 181.45), (200, 500, 98.85)])
def test_the_authors_split_has_the_papers_sizes(classes: int, samples: int, spread: float) -> None:
    """MOON, table 6: the population deviation of the parties' sizes, for CIFAR-10, CIFAR-100 and Tiny-ImageNet.

    Sizes follow from the number of samples of each class alone, so no data set is needed.
    """
    labels = np.repeat(np.arange(classes), samples)
    parts = partition(labels, PartitionSettings(kind="dirichlet-moon", devices=10, beta=0.5, seed=0))
    sizes = [len(part) for part in parts]
    assert sum(sizes) == classes * samples
    assert np.std(sizes) == pytest.approx(spread, abs=0.005)


@pytest.mark.parametrize(("classes", "samples", "spread"), [(10, 5000, 1165), (100, 500, 181), (200, 500, 99)])
def test_the_papers_spread_of_sizes_is_a_plausible_draw(classes: int, samples: int, spread: float) -> None:
    """MOON's table 6 lies in the middle 99 % of draws of the kind `dirichlet`, which differ from the authors' draw.

    The spreads of CIFAR-10 and CIFAR-100 are near the median; Tiny-ImageNet's is below all but some 2 % of draws.
    """
    labels = np.repeat(np.arange(classes), samples)
    draws = [partition(labels, PartitionSettings(devices=10, beta=0.5, seed=seed)) for seed in range(200)]
    assert all(sum(len(part) for part in parts) == len(labels) for parts in draws)  # so their mean is the paper's
    spreads = [np.std([len(part) for part in parts]) for parts in draws]
    low, high = np.quantile(spreads, [0.005, 0.995])
    assert low <= spread <= high


def test_a_class_that_no_party_can_take_is_drawn_again() -> None:
    labels = np.repeat(np.arange(3), 40)
    for seed in range(20):
        parts = partition(labels, PartitionSettings(kind="dirichlet-moon", devices=2, beta=0.05, seed=seed))
        assert sorted(np.concatenate(parts).tolist()) == list(range(120))
        assert min(len(part) for part in parts) >= 10


def test_a_device_that_holds_its_share_gets_no_more_of_the_next_classes() -> None:
    labels = np.repeat(np.arange(100), 20)
    for seed in range(5):
        parts = partition(labels, PartitionSettings(devices=4, beta=0.1, seed=seed))
        assert max(len(part) for part in parts) < len(labels) / 4 + 20  # its N-th, and at most one class beyond


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (
            {"kind": "sorted"},
            ("partition", "sorted"),
        ),
        ({"devices": 0}, ("devices", 0)),
        ({"beta": 0.0}, ("beta", 0.0)),
        ({"beta": float("nan")}, ("beta", float("nan"))),
        ({"seed": -1}, ("seed", -1)),
        ({"devices": 501}, ("devices", 501)),
        ({"devices": 400, "beta": 0.01}, ("beta", ANY)),
    ],
)
def test_data_that_cannot_be_split_are_rejected_by_name(settings: dict[str, object], named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        partition(LABELS, PartitionSettings(**settings))  # type: ignore[arg-type]


def test_the_files_hold_all_of_the_digits(tmp_path: Path) -> None:
    data = load_dataset("digits", None)
    counts = write_partition(data, PartitionSettings(devices=3), tmp_path).counts
    found = [np.load(tmp_path / f"device-{number}.npz") for number in (1, 2, 3)]
    assert [len(part["labels"]) for part in found] == counts.sum(axis=1).tolist()
    images = np.concatenate([part["inputs"] for part in found] + [np.load(tmp_path / "test.npz")["inputs"]])
    assert len(images) == 1797
    assert images.dtype == np.uint8
    description = json.loads((tmp_path / "partition.json").read_text())
    assert description["samples_by_device_and_class"] == counts.tolist()
    assert description["input_shape"] == [8, 8, 1]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with refused(InvalidInput, "output"):
        write_partition(data, PartitionSettings(devices=2), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
