"""Private rounds: the bound on what one device moves, their noise, what their keys depend on, and an attack on them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from moonfed.blobs.tensors import write_model
from moonfed.bundle.manifest import MODEL
from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.privacy.accountant import Releases, epsilon
from moonfed.errors import InvalidInput
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.fednova import FedNova
from moonfed.server_rules.server_rule import Float64Array
from tests.support.aggregation_rounds import (
    SIZE,
    Floats,
    Rounds,
    fedssc,
    make_manifest,
    scaffold,
    values_of,
)
from tests.support.private_rounds import (
    NO_NOISE,
    closed_privately,
    noise_of,
    parameters,
    prepared,
    privately,
    reduced,
)
from tests.support.refusals import refused

VALUES = 1_000_000
SMALL = 30


def without(closed: ClosedRound, index: int) -> ClosedRound:
    kept = closed.contributions[:index] + closed.contributions[index + 1 :]
    return replace(closed, contributions=kept)


def quiet_round(directory: Path, size: int, *, devices: int = 3, **fields: Any) -> tuple[ClosedRound, Floats]:
    """A round whose devices changed nothing, and the model that it starts from."""
    start = np.random.default_rng(3).normal(0, 0.05, size).astype(np.float32)
    return closed_privately(directory, start, np.tile(start, (devices, 1)), **fields), start


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.floats(0, 1e6), min_size=1, max_size=6),
    clip=st.floats(1e-3, 1e3),
    removed=st.integers(0, 5),
    expected=st.floats(0.5, 100.0),
)
def test_one_device_moves_the_sum_by_at_most_the_clip(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    lengths: list[float],
    clip: float,
    removed: int,
    expected: float,
) -> None:
    chance = np.random.default_rng(seed)
    start, changes = chance.normal(size=SMALL), chance.normal(size=(len(lengths), SMALL))
    changes *= np.array(lengths)[:, None] * clip / np.linalg.norm(changes, axis=1, keepdims=True)
    samples = [int(number) for number in chance.integers(1, 10**6, len(lengths))]
    closed = closed_privately(
        tmp_path_factory.mktemp("round"),
        start,
        start + changes,
        samples,
        clip=clip,
        expected=expected,
        noise_multiplier=NO_NOISE,
    )
    fewer = without(closed, removed % len(lengths))
    assert np.linalg.norm(reduced(closed) - reduced(fewer)) * expected <= clip * (1 + 1e-6)


def test_the_sum_is_of_clipped_changes_over_the_expected_number(tmp_path: Path) -> None:
    """By hand: changes of norms 5 and 0.5, clipped at 1, over 4 expected devices."""
    start = np.array([1.0, -1.0, 2.0])
    models = start + np.array([[3.0, 0.0, 4.0], [0.0, -0.5, 0.0]])
    closed = closed_privately(tmp_path, start, models, [1000, 1], expected=4.0, noise_multiplier=NO_NOISE)
    np.testing.assert_allclose(reduced(closed), [1 + 0.6 / 4, -1 - 0.5 / 4, 2 + 0.8 / 4], atol=1e-6)


def test_extreme_changes_are_clipped_like_others(tmp_path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    start = np.array([-largest, 0.0, 0.0])
    closed = closed_privately(tmp_path, start, np.array([[largest, 0.0, 1.0]]), noise_multiplier=NO_NOISE, clip=2.0)
    np.testing.assert_allclose(reduced(closed)[1:], 0.0, atol=1e-6)
    assert np.isfinite(reduced(closed)).all()


def test_without_updates_noise_is_released(tmp_path: Path) -> None:
    closed, start = quiet_round(tmp_path, 10_000, devices=0, sigma_b=3.0)
    noise = noise_of(closed, start)
    assert stats.kstest(noise, "norm").pvalue > 0.001
    assert prepared(closed).release.next_clip != 1.0


@pytest.mark.parametrize("fields", [{"noise_multiplier": 0.7, "clip": 3.0}, {"noise_multiplier": 4.0, "sigma_b": 3.0}])
def test_noise_has_the_released_standard_deviation(tmp_path: Path, fields: dict[str, Any]) -> None:
    closed, start = quiet_round(tmp_path, VALUES, **fields)
    noise = noise_of(closed, start)
    assert stats.kstest(noise, "norm").pvalue > 0.001
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / np.sqrt(VALUES)


def test_the_counts_noise_is_normal_and_independent_of_the_sums(tmp_path: Path) -> None:
    closed, start = quiet_round(tmp_path, SMALL, devices=0, sigma_b=2.0)
    attempts = [with_privacy(closed, tmp_path, attempt=attempt) for attempt in range(1, 401)]
    moves = np.log([prepared(attempt).release.next_clip for attempt in attempts])
    of_counts = moves / (-0.2 * 2.0 / 10)  # rate, σ_b and expected number
    of_sums = np.array([noise_of(attempt, start) for attempt in attempts])
    assert stats.kstest(of_counts, "norm").pvalue > 0.001
    correlations = [np.corrcoef(of_counts, of_sum)[0, 1] for of_sum in of_sums.T]
    assert np.abs(correlations).max() < 5 / np.sqrt(400)


def test_the_same_round_has_the_same_bits_in_any_order_and_ranges(tmp_path: Path) -> None:
    start = np.random.default_rng(1).normal(size=1001)
    models = start + np.random.default_rng(2).normal(size=(4, 1001)) / 1000
    closed = closed_privately(tmp_path, start, models)
    shuffled = replace(closed, contributions=tuple(reversed(closed.contributions)))
    np.testing.assert_array_equal(reduced(shuffled), reduced(closed))
    by_slices = prepared(closed, 7)
    assert [start for start, _ in by_slices.ranges] == list(range(0, 1001, 7))
    cut = np.concatenate([by_slices.reduce(start, stop) for start, stop in by_slices.ranges])
    np.testing.assert_array_equal(cut, reduced(closed))
    assert prepared(shuffled).release == prepared(closed).release


def changed_update(closed: ClosedRound, directory: Path) -> ClosedRound:
    """The round with the last bit of one value of one update changed."""
    first, *others = closed.contributions
    values = values_of(first.files[MODEL], closed.manifest.tensors).astype(np.float32)
    values[0] = np.nextafter(values[0], np.float32(1))
    path = directory / "changed"
    write_model(path, closed.manifest.tensors, [values])
    changed = replace(closed, contributions=(replace(first, files={MODEL: path}), *others))
    assert closed.privacy
    return replace(privately(changed), privacy=closed.privacy)


def with_privacy(closed: ClosedRound, _: Path, **fields: Any) -> ClosedRound:
    assert closed.privacy
    return replace(closed, privacy=replace(closed.privacy, **fields))


@pytest.mark.parametrize(
    "change",
    [
        changed_update,
        lambda closed, _: without(closed, 0),
        lambda closed, _: replace(closed, round=closed.round + 1),
        lambda closed, _: replace(closed, global_sha256="0" * 64),
        lambda closed, _: replace(closed, draw=Draw(bytes(32))),
        lambda closed, _: replace(
            closed, contributions=(replace(closed.contributions[0], device="x"), *closed.contributions[1:])
        ),
        partial(with_privacy, attempt=2),
        partial(with_privacy, clip=1.5),
        partial(with_privacy, noise_multiplier=1.5),
        partial(with_privacy, sampling_rate=0.2),
        partial(with_privacy, sigma_b=2.0),
    ],
    ids=["update", "device", "round", "start", "secret", "name", "attempt", "clip", "z", "q", "sigma_b"],
)
def test_another_sum_has_independent_noise(tmp_path: Path, change: Any) -> None:
    closed, start = quiet_round(tmp_path, 40_000)
    other = change(closed, tmp_path)
    assert abs(np.corrcoef(noise_of(closed, start), noise_of(other, start))[0, 1]) < 5 / np.sqrt(40_000)
    assert prepared(other).release.updates_digest != prepared(closed).release.updates_digest


def test_a_rule_moves_by_the_noisy_mean_and_nobody_is_named(tmp_path: Path) -> None:
    size, specs = 90, parameters(90)
    start = np.random.default_rng(1).normal(size=size)
    models = start + np.random.default_rng(2).normal(size=(3, size)) * [[100.0], [1.0], [0.001]]
    played = Rounds(tmp_path, make_manifest(tensors=specs, server_rule=FedAvgM()), start)
    closed = privately(played.closed(models, [1, 1000, 7]))
    aggregated = aggregate(closed, tmp_path / "1")
    np.testing.assert_allclose(values_of(aggregated.files[MODEL], specs), reduced(closed), rtol=1e-6, atol=1e-6)
    assert set(aggregated.files) == {MODEL, "momentum"}
    assert aggregated.incidents == ()
    assert aggregated.release == prepared(closed).release


def test_the_digest_reveals_nothing_without_the_secret(tmp_path: Path) -> None:
    closed, _ = quiet_round(tmp_path, SMALL)
    digests = {prepared(replace(closed, draw=Draw(bytes([n] * 32)))).release.updates_digest for n in range(5)}
    assert len(digests) == 5
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


def test_a_round_without_privacy_releases_nothing_by_the_mechanism(tmp_path: Path) -> None:
    played = Rounds(tmp_path, make_manifest(), np.zeros(SIZE))
    assert aggregate(played.closed(np.ones((2, SIZE)), [1, 1]), tmp_path / "1").release is None


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (make_manifest(), "model"),
        (scaffold(tensors=parameters(SIZE)), "method"),
        (fedssc(2, tensors=parameters(SIZE)), "method"),
        (make_manifest(tensors=parameters(SIZE), server_rule=FedNova()), "server_rule"),
    ],
    ids=["statistics", "variate", "class means", "steps"],
)
def test_what_the_mechanism_does_not_protect_is_refused(tmp_path: Path, manifest: Any, field: str) -> None:
    closed = privately(Rounds(tmp_path, manifest, np.zeros(SIZE)).closed(np.ones((2, SIZE)), [1, 1]))
    with refused(InvalidInput, field):
        aggregate(closed, tmp_path / "1")


@pytest.mark.parametrize("lacking", ["start", "update"])
def test_a_round_without_digests_is_refused(tmp_path: Path, lacking: str) -> None:
    closed, _ = quiet_round(tmp_path, SMALL)
    if lacking == "start":
        closed = replace(closed, global_sha256="")
    else:
        closed = replace(closed, contributions=(replace(closed.contributions[0], sha256=""),))
    with refused(InvalidInput, "sha256", ""):
        aggregate(closed, tmp_path)


CANARIES = 500
DELTA = 1e-5


def audited(directory: Path, z: float) -> float:
    """Attack one release: half of the devices take part, each with a coordinate of its own, 100 times its clip.

    Returns the largest epsilon that 95 % confidence excludes. With a release that is epsilon-private a guess of who
    took part is right with a chance of at most e^ε/(1 + e^ε), independently of the others (Steinke, Nasr and Jagielski,
    NeurIPS 2023, theorem 5.2; its term in delta is below one guess here).
    """
    present = np.random.default_rng(11).random(CANARIES) < 0.5
    start = np.zeros(CANARIES)
    models = 100 * np.eye(CANARIES)[present]
    closed = closed_privately(directory, start, models, sampling_rate=1.0, expected=CANARIES, noise_multiplier=z)
    scores: Float64Array = reduced(closed) * CANARIES
    right = int(((scores > 0.5) == present).sum())
    chance = float(stats.beta.ppf(0.05, right, CANARIES - right + 1))
    return math.log(chance / (1 - chance))


def test_an_attack_learns_no_more_than_the_accountant_allows(tmp_path: Path) -> None:
    z = 8.0
    promised = epsilon([Releases(sampling_rate=1.0, noise_multiplier=z)], DELTA)
    assert audited(tmp_path / "promised", z) < promised
    assert audited(tmp_path / "an-eighth-of-the-noise", z / 8) > promised
