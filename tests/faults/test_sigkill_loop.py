"""A coordinator that is killed at random moments of a run of 20 rounds loses no update and counts none twice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, expected, whole_run
from tests.faults.kills import RUN, Reaper, kills
from tests.support.coordinator import model_values

pytestmark = pytest.mark.slow

ROUNDS = 20


@pytest.mark.timeout(120 + 4 * kills(12))
def test_a_run_over_many_kills_ends_with_the_undisturbed_model(coordinators: Coordinators) -> None:
    ends_undisturbed(coordinators, kills(12))


@pytest.mark.timeout(120 + 8 * kills(4))
def test_a_run_on_shared_storage_ends_with_the_undisturbed_model(
    shared_coordinators: Coordinators,
) -> None:
    ends_undisturbed(shared_coordinators, kills(4))


@pytest.mark.timeout(120 + 4 * kills(12))
def test_a_private_run_over_many_kills_is_charged_once_for_each_round(coordinators: Coordinators) -> None:
    charged_once(coordinators, kills(12))


@pytest.mark.timeout(120 + 8 * kills(4))
def test_a_private_run_on_shared_storage_is_charged_once_for_each_round(shared_coordinators: Coordinators) -> None:
    charged_once(shared_coordinators, kills(4))


def charged_once(coordinators: Coordinators, times: int) -> None:
    reaper = Reaper(coordinators, times, ROUNDS)
    coordinators.serve()
    number = len(SAMPLES)
    coordinators.start_run(
        RUN,
        bundle_of(1000),
        ROUNDS,
        number,
        trusting=False,
        privacy={"epsilon": 1000, "delta": 0.1, "noise_multiplier": 1.0},
        cohort=number,
        population=number,
        clip_norm=1.0,
    )
    with devices_at(coordinators, pace=reaper) as devices:
        reaper.reap(devices)
        coordinators.serve()
        ended = coordinators.finished(RUN)
    whole_run(coordinators, RUN, ROUNDS)
    assert (ended.privacy.releases, ended.privacy.rounds) == (ROUNDS, ROUNDS)
    assert len({blob.sha256 for blob in (entry.model for entry in coordinators.rounds(RUN))}) == ROUNDS


def ends_undisturbed(coordinators: Coordinators, times: int) -> None:
    reaper, bundle = Reaper(coordinators, times, ROUNDS), bundle_of(1000)
    coordinators.serve()
    coordinators.start_run("undisturbed", bundle, ROUNDS, len(SAMPLES))
    with devices_at(coordinators, pace=reaper) as devices:
        coordinators.finished("undisturbed")
        undisturbed = coordinators.model("undisturbed")
        coordinators.start_run(RUN, bundle, ROUNDS, len(SAMPLES))
        reaper.reap(devices)
        coordinators.serve()
        coordinators.finished(RUN)
    whole_run(coordinators, RUN, ROUNDS)
    assert coordinators.model(RUN) == undisturbed
    computed = expected(ROUNDS, bundle, SAMPLES)
    np.testing.assert_allclose(model_values(undisturbed, bundle.manifest.tensors), computed, rtol=1e-5, atol=1e-6)
