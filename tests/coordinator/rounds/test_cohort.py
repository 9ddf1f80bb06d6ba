"""Sampling of cohorts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.cohort import draw_cohort, draw_order, poisson_cohort
from moonfed.coordinator.rounds.events import (
    DeviceOnline,
    Resumed,
    UpdateAccepted,
)
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import State
from tests.support.state_machine_fleet import DRAW, after

NAMES = strategies.sets(strategies.text("abcdef0123", min_size=1, max_size=4), min_size=1, max_size=20)


@given(NAMES, strategies.binary(min_size=32, max_size=32), strategies.integers(1, 25), strategies.integers(0, 9))
def test_the_cohort_depends_on_secret_round_attempt_and_names_alone(
    devices: set[str], secret: bytes, count: int, seed: int
) -> None:
    settings = RunSettings(rounds=9, cohort=Amount(count=count), quorum=Amount(count=1), seed=seed)
    shuffled = sorted(devices, key=lambda name: hash((name, secret)))
    cohort = draw_cohort(settings, Draw(secret), 3, 1, shuffled, {})
    assert cohort == draw_cohort(replace(settings, seed=0), Draw(secret), 3, 1, sorted(devices, reverse=True), {})
    assert list(cohort) == sorted(cohort)
    assert len(cohort) == min(count, len(devices))
    assert set(cohort) <= devices


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [
        *(("cohort", sampling) for sampling in ("uniform", "samples")),
        *(("replacements", sampling) for sampling in ("uniform", "samples")),
        ("asynchronous", "uniform"),
    ],
)
def test_another_secret_draws_others_though_seed_and_names_are_the_same(kind: str, sampling: str) -> None:
    devices = {f"cam-{number:02}": 10 + number for number in range(40)}
    settings = RunSettings(rounds=9, cohort=Amount(count=8), quorum=Amount(count=8), sampling=sampling, seed=3)
    if kind == "asynchronous":
        settings = replace(settings, asynchronous=8, max_staleness=0)

    def drawn(secret: int) -> Sequence[str]:
        draw = Draw(bytes([secret] * 32))
        if kind == "replacements":
            return draw_order(settings, draw, 1, 1, devices, devices)[:8]
        protocol = round_protocol(settings)
        state, _ = protocol.step(settings, draw, protocol.first, Resumed(online=devices))
        assert state.open
        return state.open.cohort

    assert drawn(1) == drawn(1)
    different = {tuple(drawn(secret)) for secret in range(9)}
    assert len(different) == 9, "two cohorts of 8 of 40 are the same with probability 1e-8"


def test_every_device_is_drawn_about_as_often() -> None:
    settings = RunSettings(rounds=9, cohort=Amount(count=5), quorum=Amount(count=1))
    devices = [f"cam-{number}" for number in range(20)]
    drawn = [name for round_ in range(1, 401) for name in draw_cohort(settings, DRAW, round_, 1, devices, {})]
    assert all(60 < drawn.count(name) < 140 for name in devices), "100 are expected, with a deviation of 8.7"


def test_cohorts_by_samples_are_drawn_without_replacement() -> None:
    """Draw two of the weights 1, 2 and 5: first i, then j has probability w_i/8 · w_j/(8 - w_i)."""
    settings = RunSettings(rounds=9, cohort=Amount(count=2), quorum=Amount(count=1), sampling="samples")
    weights = {"a": 100, "b": 200, "c": 500}
    drawn = Counter(draw_cohort(settings, DRAW, round_, 1, weights, weights) for round_ in range(1, 4001))
    expected = {
        ("a", "b"): 1 / 8 * 2 / 7 + 2 / 8 * 1 / 6,
        ("a", "c"): 1 / 8 * 5 / 7 + 5 / 8 * 1 / 3,
        ("b", "c"): 2 / 8 * 5 / 6 + 5 / 8 * 2 / 3,
    }
    assert sum(expected.values()) == pytest.approx(1)
    for pair, probability in expected.items():
        assert abs(drawn[pair] - 4000 * probability) < 4 * math.sqrt(4000 * probability * (1 - probability))


def test_devices_with_unknown_samples_weigh_the_mean_of_the_others() -> None:
    settings = RunSettings(rounds=9, cohort=Amount(count=1), quorum=Amount(count=1), sampling="samples")
    known, all_known = {"a": 100, "b": 500}, {"a": 100, "b": 500, "c": 300}
    for round_ in range(1, 200):
        cohort = draw_cohort(settings, DRAW, round_, 1, "abc", known)
        assert cohort == draw_cohort(settings, DRAW, round_, 1, "abc", all_known)
    assert draw_cohort(settings, DRAW, 1, 1, "abc", {}) == draw_cohort(
        settings, DRAW, 1, 1, "abc", dict.fromkeys("abc", 7)
    )


def test_reported_sample_counts_determine_the_next_cohort() -> None:
    settings = RunSettings(
        rounds=9, cohort=Amount(count=1), minimum_devices=2, quorum=Amount(count=1), sampling="samples"
    )
    state, _ = after(settings, DeviceOnline(device="a", samples=30), DeviceOnline(device="b"))
    assert state.samples == {"a": 30}
    assert state.open
    (drawn,) = state.open.cohort
    told = UpdateAccepted(round=1, attempt=1, device=drawn, samples=90)
    state, _ = after(settings, told, DeviceOnline(device=drawn), state=state)
    assert state.samples[drawn] == 90, "reconnecting without a number of samples changes nothing"
    state, _ = after(settings, Resumed(online={"a": 5, "b": 0}), state=State())
    assert state.samples == {"a": 5}


def private(cohort: int, population: int, **others: Any) -> RunSettings:
    privacy = {"epsilon": 2, "delta": 1e-6, "noise_multiplier": 1}
    return RunSettings(
        cohort=Amount(count=cohort),
        population=population,
        privacy=privacy,
        clip_norm=1.0,
        quorum=Amount(count=1),
        **others,
    )


def test_privacy_draws_each_device_with_the_same_probability_whoever_else_is_there() -> None:
    settings, devices, rounds = private(3, 60), [f"cam-{number}" for number in range(100)], 1000
    drawn = [poisson_cohort(settings, DRAW, round_, 1, devices) for round_ in range(1, rounds + 1)]
    total, rate = rounds * len(devices), 3 / 60
    assert abs(sum(map(len, drawn)) - total * rate) < 5 * math.sqrt(total * rate * (1 - rate))
    sizes = [len(cohort) for cohort in drawn]
    variance = sum((size - 5) ** 2 for size in sizes) / rounds
    assert 3.5 < variance < 6.5, "4.75 of a binomial distribution; a cohort of fixed size has none"
    for number, cohort in enumerate(drawn, 1):
        assert poisson_cohort(settings, DRAW, number, 1, devices[:50]) == tuple(sorted(set(cohort) & set(devices[:50])))
    assert drawn[0] != poisson_cohort(settings, DRAW, 1, 2, devices), "each attempt is drawn afresh"
    assert drawn[0] != poisson_cohort(settings, Draw(bytes(32)), 1, 1, devices), "the secret decides"


def test_privacy_draws_everybody_where_the_cohort_is_the_population() -> None:
    assert draw_cohort(private(7, 7), DRAW, 1, 1, "gfedcba", {}) == tuple("abcdefg")
