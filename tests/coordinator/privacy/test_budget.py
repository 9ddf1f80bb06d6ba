"""The budget of a run with privacy: its noise, its rounds, what it has spent, and the bundles that it may have."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import DEFAULTS, RunSettings
from moonfed.coordinator.privacy.accountant import Releases, epsilon
from moonfed.coordinator.privacy.budget import private_round, report, spent, with_noise
from moonfed.coordinator.privacy.ledger_entry import LedgerTotal
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


def total(releases: int, run: str = "digits", created: float = 1.0, **others: Any) -> LedgerTotal:
    given = {"mechanism": "gaussian", "delta": 1e-5, "sampling_rate": 120 / 3383, "noise_multiplier": 1.2}
    return LedgerTotal(run=run, created=created, releases=releases, **{**given, "committed": 2.0, **others})


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
    assert found.expected == 120
    assert found.noise_multiplier == chosen.privacy["noise_multiplier"]
    assert private_round(DEFAULTS, 1, 0.0) is None


def test_what_is_spent_follows_from_the_ledger_alone() -> None:
    chosen = settings(noise_multiplier=1.2)
    none = spent(chosen, [])
    assert none
    assert (none.epsilon, none.releases, none.rounds, none.clip_norm, none.unprotected) == (0, 0, 100, 0.5, ())
    unprotected = [total(1, mechanism="none", what=what, noise_multiplier=0.0) for what in ("round 9", "round 3")]
    found = spent(chosen, [total(3, delta=1e-6, next_clip_norm=0.75), total(97, next_clip_norm=1.5), *unprotected])
    assert found
    assert found.epsilon == epsilon([made(100)], 1e-5), "what has the same noise is one sum, bit for bit"
    assert (found.releases, found.clip_norm, found.unprotected) == (100, 1.5, ("round 9", "round 3"))
    assert (found.budget, found.delta, found.sampling_rate) == (2, 1e-5, 120 / 3383)
    assert spent(DEFAULTS, []) is None


def test_runs_are_composed_at_one_delta_also_those_of_the_same_name() -> None:
    first, second = total(3), total(1, created=5.0, noise_multiplier=2.0, delta=1e-6)
    unprotected = total(1, mechanism="none", what="evaluation of round 1", delta=0.0, committed=3.0)
    found = report([second, unprotected, first], ["other"])
    together = [
        Releases(sampling_rate=120 / 3383, noise_multiplier=1.2, rounds=3),
        Releases(sampling_rate=120 / 3383, noise_multiplier=2.0),
    ]
    assert (found.epsilon, found.delta) == (epsilon(together, 1e-6), 1e-6)
    assert report([first, second], [], delta=1e-4).epsilon == epsilon(together, 1e-4)
    assert [(charge.releases, charge.mechanism, charge.what) for charge in found.charges] == [
        (3, "gaussian", ""),
        (1, "none", "evaluation of round 1"),
        (1, "gaussian", ""),
    ]
    assert found.charges[0].epsilon == epsilon(together[:1], 1e-5)
    assert [charge.last.timestamp() for charge in found.charges] == [2.0, 3.0, 2.0]
    assert found.runs_without == ("other",)
    empty = report([], [])
    assert (empty.epsilon, empty.delta, empty.charges) == (0, 0, ())


def test_the_order_in_which_runs_began_changes_no_bit_of_their_epsilon() -> None:
    orders = itertools.permutations([0.5, 1.2, 1.5])
    began = [
        [total(1, created=float(at), noise_multiplier=noise) for at, noise in enumerate(order)] for order in orders
    ]
    assert {report(totals, []).epsilon for totals in began} == {
        epsilon([made(1, noise) for noise in (0.5, 1.2, 1.5)], 1e-5)
    }
