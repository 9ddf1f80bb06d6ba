"""The budget of a run with privacy: its noise, its rounds, what it has spent, and the bundles that it may have."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import DEFAULTS, RunSettings
from moonfed.coordinator.privacy.accountant import Releases, epsilon
from moonfed.coordinator.privacy.budget import private_round, report, spent, with_noise
from moonfed.coordinator.privacy.ledger_entry import LedgerEntry
from moonfed.errors import InvalidInput
from tests.support.refusals import refused


def settings(rounds: int = 100, **privacy: Any) -> RunSettings:
    return RunSettings(
        rounds=rounds,
        cohort=Amount(count=120),
        population=3383,
        privacy={"epsilon": 2, "delta": 1e-5, **privacy},
        clip_norm=0.5,
    )


def release(run: str = "digits", created: float = 1.0, round_: int = 1, **others: Any) -> LedgerEntry:
    given = {"mechanism": "gaussian", "delta": 1e-5, "sampling_rate": 120 / 3383, "noise_multiplier": 1.2}
    return LedgerEntry(run=run, created=created, round=round_, attempt=1, **{**given, "committed": 2.0, **others})


def made(rounds: int, noise: float = 1.2) -> Releases:
    return Releases(sampling_rate=120 / 3383, noise_multiplier=noise, rounds=rounds)


def test_the_noise_is_the_least_that_permits_all_rounds() -> None:
    chosen = with_noise(settings())
    noise = float(chosen.privacy["noise_multiplier"])
    assert chosen.rounds == 100
    assert noise == pytest.approx(1.196, abs=5e-4)
    assert epsilon([Releases(sampling_rate=120 / 3383, noise_multiplier=noise, rounds=100)], 1e-5) <= 2
    assert epsilon([Releases(sampling_rate=120 / 3383, noise_multiplier=noise - 2e-6, rounds=100)], 1e-5) > 2
    assert with_noise(chosen) == chosen, "a run is repeated with the settings that it shows"
    assert with_noise(DEFAULTS) == DEFAULTS


def test_a_given_noise_limits_the_rounds() -> None:
    chosen = with_noise(settings(rounds=1000, noise_multiplier=1.2))
    assert chosen.privacy["noise_multiplier"] == 1.2
    assert 100 <= chosen.rounds < 110
    assert epsilon([made(chosen.rounds)], 1e-5) <= 2
    assert epsilon([made(chosen.rounds + 1)], 1e-5) > 2


@pytest.mark.parametrize(
    ("privacy", "named"),
    [({"noise_multiplier": 0.3}, "privacy.noise_multiplier"), ({"noise_multiplier": 4, "sigma_b": 1}, "sigma_b")],
)
def test_a_noise_that_permits_no_round_or_no_adaptive_clip_is_refused(privacy: dict[str, Any], named: str) -> None:
    with refused(InvalidInput, named):
        with_noise(settings(**privacy))


def test_the_denominator_is_the_expected_cohort() -> None:
    chosen = with_noise(settings(sigma_b=6))
    found = private_round(chosen, 3, 0.25)
    assert found
    assert (found.attempt, found.clip, found.sigma_b) == (3, 0.25, 6.0)
    assert found.expected == pytest.approx(120)
    assert found.noise_multiplier == chosen.privacy["noise_multiplier"]
    assert private_round(DEFAULTS, 1, 0.0) is None


def test_what_is_spent_follows_from_the_ledger_alone() -> None:
    chosen = settings(noise_multiplier=1.2)
    none = spent(chosen, [])
    assert none
    assert (none.epsilon, none.releases, none.rounds, none.clip_norm, none.unprotected) == (0, 0, 100, 0.5, ())
    rows = [release(round_=number, next_clip_norm=0.5 + number / 100) for number in range(1, 101)]
    unprotected = release(mechanism="none", what="evaluation of round 3", noise_multiplier=0.0)
    found = spent(chosen, [*rows, unprotected])
    assert found
    assert found.epsilon == epsilon([Releases(sampling_rate=120 / 3383, noise_multiplier=1.2, rounds=100)], 1e-5)
    assert (found.releases, found.clip_norm, found.unprotected) == (100, 1.5, ("evaluation of round 3",))
    assert (found.budget, found.delta, found.sampling_rate) == (2, 1e-5, 120 / 3383)
    assert spent(DEFAULTS, []) is None


def test_runs_are_composed_at_one_delta_also_those_of_the_same_name() -> None:
    first = [release(round_=number) for number in (1, 2, 3)]
    second = [release(created=5.0, round_=1, noise_multiplier=2.0, delta=1e-6)]
    unprotected = release(mechanism="none", what="evaluation of round 1", delta=0.0)
    found = report([*second, *first, unprotected], ["other"])
    together = [
        Releases(sampling_rate=120 / 3383, noise_multiplier=1.2, rounds=3),
        Releases(sampling_rate=120 / 3383, noise_multiplier=2.0),
    ]
    assert (found.epsilon, found.delta) == (epsilon(together, 1e-6), 1e-6)
    assert report([*first, *second], [], delta=1e-4).epsilon == epsilon(together, 1e-4)
    assert [(charge.releases, charge.mechanism, charge.what) for charge in found.charges] == [
        (3, "gaussian", ""),
        (1, "none", "evaluation of round 1"),
        (1, "gaussian", ""),
    ]
    assert found.charges[0].epsilon == epsilon(together[:1], 1e-5)
    assert found.runs_without == ("other",)
    empty = report([], [])
    assert (empty.epsilon, empty.delta, empty.charges) == (0, 0, ())
