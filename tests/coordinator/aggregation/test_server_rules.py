"""The server rules against numpy on whole models in float64, written from the papers' formulas."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies
from hypothesis import settings as hypothesis_settings

from moonfed.errors import InvalidInput
from moonfed.registry import find_problem
from moonfed.server_rules import SERVER_RULES
from moonfed.server_rules.fedadagrad import FedAdagrad
from moonfed.server_rules.fedadam import FedAdam
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.fednova import FedNova
from moonfed.server_rules.fedyogi import FedYogi
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from tests.support.aggregation_rounds import PARAMETERS, SIZE, Rounds, make_manifest, momentum_of

F64 = npt.NDArray[np.float64]
RULES: list[ServerRule] = [*(rule() for rule in SERVER_RULES.values()), FedAvgM(damped=True)]


def rounds(directory: Path, rule: ServerRule | None = None, start: float = 0.5, **fields: Any) -> Rounds:
    manifest = make_manifest(server_rule=rule or MeanRule())
    return Rounds(directory, manifest, np.full(SIZE, start, np.float32), **fields)


def updates(seed: int, devices: int = 3) -> F64:
    """Models of some devices in float32, with non-negative variances (b.running_var)."""
    models = np.random.default_rng(seed).normal(size=(devices, SIZE))
    models[:, 96:107] = models[:, 96:107] ** 2
    return models.astype(np.float32).astype(np.float64)


def mean_of(models: F64, samples: list[int]) -> F64:
    shares = np.array(samples) / sum(samples)
    mean: F64 = np.einsum("i,ij->j", shares, models)
    return mean


def assert_close(found: F64, expected: F64) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)  # files hold float32


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_the_mean_uses_the_rules_weighting(tmp_path: Path, count: int, weighting: str) -> None:
    chance = np.random.default_rng(count)
    values = (chance.normal(size=(count, SIZE)) * 10.0 ** chance.integers(-6, 6, size=(count, 1))).astype(np.float32)
    samples = [int(number) for number in chance.integers(1, 100_000, size=count)]
    rule = MeanRule(weighting="samples") if weighting == "samples" else MeanRule(weighting="uniform")
    found = rounds(tmp_path, rule).next(values, samples)
    weights = samples if weighting == "samples" else None
    expected = np.average(values.astype(np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("damped", [False, True])
def test_fedavgm_adds_a_momentum_of_the_mean_change(tmp_path: Path, damped: bool) -> None:
    """After three rounds in closed form: w_3 = w_0 + v_1 + v_2 + v_3, v_t = Σ_s β^(t-s)·Δ_s (times 1 - β if damped)."""
    beta, samples = 0.7, [10, 30, 60]
    played = rounds(tmp_path, FedAvgM(server_momentum=beta, damped=damped))
    w, deltas = np.full(SIZE, 0.5), []
    for number in range(3):
        models = updates(number)
        mean = mean_of(models, samples)
        deltas.append(mean - w)
        v = sum(beta ** (number - s) * delta for s, delta in enumerate(deltas)) * (1 - beta if damped else 1)
        expected = np.where(PARAMETERS, w + v, mean)
        w = played.next(models, samples)
        assert_close(w, expected)
        np.testing.assert_allclose(w[~PARAMETERS], mean[~PARAMETERS], rtol=1e-6)
        assert_close(played.memory("momentum"), np.where(PARAMETERS, v, 0))


@pytest.mark.parametrize("name", SERVER_RULES)
def test_a_rules_entry_is_complete(name: str) -> None:
    assert find_problem(name, SERVER_RULES[name], ServerRule) == ""


def test_no_two_rules_give_the_same_model(tmp_path: Path) -> None:
    """A rule that falls through to the mean, or to another rule, would."""
    found = []
    for number, rule in enumerate(RULES):
        played = rounds(tmp_path / str(number), rule)
        for round_ in range(3):
            model = played.next(updates(round_), [3, 1, 4], [1, 5, 9])
        found.append(model[PARAMETERS])
    for i, j in itertools.combinations(range(len(found)), 2):
        assert np.abs(found[i] - found[j]).max() > 1e-5, (RULES[i], RULES[j])


def test_no_server_rule_moves_statistics(tmp_path: Path) -> None:
    """A variance that falls for rounds would become negative under a momentum of 0.9."""
    samples = [1, 3]
    for number, rule in enumerate(RULES):
        played = rounds(tmp_path / str(number), rule, start=8.0)
        for value in (4.0, 1.0, 0.25, 0.0625):
            models = np.stack([np.full(SIZE, value), np.full(SIZE, value / 2)])
            found = played.next(models, samples)
            np.testing.assert_allclose(found[~PARAMETERS], 0.625 * value, rtol=1e-6)
    # the same course for parameters shows that the case is sharp
    played = rounds(tmp_path / "sharp", FedAvgM(), start=8.0)
    course = [played.next(np.full((1, SIZE), value), [1])[0] for value in (4.0, 1.0, 0.25, 0.0625)]
    assert min(course) < 0


def fednova_by_simulation(steps: int, rho: float) -> float:
    """Simulate the distance of K steps of SGD with momentum under a constant gradient of 1 at learning rate 1."""
    velocity = distance = 0.0
    for _ in range(steps):
        velocity = rho * velocity + 1.0
        distance += velocity
    return distance


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_fednova_normalises_by_effective_steps(tmp_path: Path, rho: float, weighting: str) -> None:
    steps, samples = [1, 4, 25], [50, 20, 30]
    rule = FedNova(weighting="samples") if weighting == "samples" else FedNova(weighting="uniform")
    manifest = make_manifest(server_rule=rule, training=momentum_of(rho))
    w, models = np.full(SIZE, 0.5), updates(4)
    found = Rounds(tmp_path, manifest, w).next(models, samples, steps)
    p = np.array(samples) / 100 if weighting == "samples" else np.full(3, 1 / 3)
    a = np.array([fednova_by_simulation(number, rho) for number in steps])
    direction = sum(p[i] * (w - models[i]) / a[i] for i in range(3))
    mean = sum(p[i] * models[i] for i in range(3))
    assert_close(found, np.where(PARAMETERS, w - (p @ a) * direction, mean))


def test_fednova_takes_the_momentum_of_the_round(tmp_path: Path) -> None:
    fields = {"training": momentum_of(0.0), "schedules": {"momentum": ((1, 0.0), (2, 0.9))}}
    played = Rounds(tmp_path, make_manifest(server_rule=FedNova(), **fields), np.full(SIZE, 0.5))
    w, steps = np.full(SIZE, 0.5), [1, 25]
    for number, rho in enumerate((0.0, 0.9)):
        models = updates(20 + number, devices=2)
        a = np.array([fednova_by_simulation(taken, rho) for taken in steps])
        moved = w - a.mean() * sum((w - models[i]) / a[i] for i in range(2)) / 2
        w = played.next(models, [1, 1], steps)
        assert_close(w[PARAMETERS], moved[PARAMETERS])


def test_fednova_of_equal_steps_is_the_mean(tmp_path: Path) -> None:
    models, samples = updates(5), [5, 1, 9]
    found = rounds(tmp_path, FedNova()).next(models, samples, [12, 12, 12])
    assert_close(found, mean_of(models, samples))


@pytest.mark.parametrize("rule", [FedAdam(), FedYogi(beta2=0.5), FedAdagrad(server_learning_rate=0.3)])
def test_adaptive_rules_over_three_rounds(tmp_path: Path, rule: FedAdam | FedYogi | FedAdagrad) -> None:
    samples, played = [10, 30, 60], rounds(tmp_path, rule)
    eta, tau = rule.server_learning_rate, rule.adaptivity
    w, m, v = np.full(SIZE, 0.5), np.zeros(SIZE), np.full(SIZE, tau * tau)
    for number in range(3):
        models = updates(10 + number) * 0.5**number
        mean = mean_of(models, samples)
        delta = mean - w
        m = rule.beta1 * m + (1 - rule.beta1) * delta
        for i in range(SIZE):  # element by element, as algorithm 2 of Reddi et al. states it
            square = delta[i] * delta[i]
            if rule.name == "fedadam":
                v[i] = rule.beta2 * v[i] + (1 - rule.beta2) * square
            elif rule.name == "fedyogi":
                sign = int(v[i] > square) - int(v[i] < square)
                v[i] = v[i] - (1 - rule.beta2) * square * sign
            else:
                v[i] = v[i] + square
        expected = [w[i] + eta * m[i] / (math.sqrt(v[i]) + tau) for i in range(SIZE)]
        w = played.next(models, samples)
        np.testing.assert_allclose(w[PARAMETERS], np.array(expected)[PARAMETERS], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(w[~PARAMETERS], mean[~PARAMETERS], rtol=1e-6)
        np.testing.assert_allclose(played.memory("first_moment")[PARAMETERS], m[PARAMETERS], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(played.memory("second_moment")[PARAMETERS], v[PARAMETERS], rtol=1e-5, atol=1e-9)


@hypothesis_settings(max_examples=25, deadline=None)
@given(slice_elements=strategies.integers(1, SIZE + 3), rule=strategies.sampled_from(RULES))
def test_slices_change_nothing(tmp_path_factory: pytest.TempPathFactory, slice_elements: int, rule: ServerRule) -> None:
    directory = tmp_path_factory.mktemp("rounds")
    whole = rounds(directory / "whole", rule)
    sliced = rounds(directory / "sliced", rule, slice_elements=slice_elements)
    for number in range(2):
        for played in (whole, sliced):
            played.next(updates(number), [3, 1, 4], [1, 5, 9])
        assert set(whole.state) == set(sliced.state)
        for role, path in whole.state.items():
            assert path.read_bytes() == sliced.state[role].read_bytes()


def test_sums_are_float64(tmp_path: Path) -> None:
    """In float32, an element of one in a sum of a hundred million would be lost."""
    models = np.stack([np.full(SIZE, value, np.float32) for value in (1e8, 1.0, -1e8)])
    np.testing.assert_array_equal(rounds(tmp_path).next(models, [1, 1, 1]), np.float32(1 / 3))


def test_the_mean_of_equal_models_is_that_model(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    np.testing.assert_array_equal(rounds(tmp_path).next(np.stack([values] * 5), [1, 2, 3, 4, 5]), values)


def test_the_largest_numbers_do_not_overflow(tmp_path: Path) -> None:
    largest = np.full((3, SIZE), np.finfo(np.float32).max, np.float32)
    np.testing.assert_array_equal(rounds(tmp_path).next(largest, [10_000_000] * 3), largest[0])


def test_a_diverging_rule_is_reported_and_produces_no_model(tmp_path: Path) -> None:
    largest = np.full((1, SIZE), np.finfo(np.float32).max, np.float32)
    played = rounds(tmp_path, FedAvgM(server_momentum=0.9))
    played.next(largest, [1])
    with pytest.raises(InvalidInput, match="float32 cannot hold"):
        played.next(largest, [1])
