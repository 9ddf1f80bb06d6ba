"""A coordinator that is killed at random moments of a run of 20 rounds loses no update and counts none twice."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

import numpy as np
import pytest

from tests.coordinator.support import model_values
from tests.faults.fleet import SAMPLES, Coordinators, LightDevice, bundle_of, devices_at, expected, whole_run

ROUNDS = 20
KILLS = int(os.environ.get("MOONFED_KILLS", "12"))  # `make soak` asks for 200
KILLED_WHILE_IT_STARTS = 0.2  # of all kills


def rounds_begun(devices: Sequence[LightDevice]) -> int:
    return max((round_ for device in devices for run, round_, _ in list(device.receipts) if run == "killed"), default=0)


@pytest.mark.timeout(120 + 4 * KILLS)
def test_a_run_over_many_kills_ends_with_the_undisturbed_model(coordinators: Coordinators) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance, bundle = random.Random(seed), bundle_of(1000)
    coordinators.serve()
    coordinators.start_run("undisturbed", bundle, ROUNDS, len(SAMPLES))
    with devices_at(coordinators) as devices:
        coordinators.finished("undisturbed")
        undisturbed = coordinators.model("undisturbed")
        coordinators.start_run("killed", bundle, ROUNDS, len(SAMPLES))
        for kill in range(1, KILLS + 1):
            live_and_die(coordinators, devices, chance, rounds=(ROUNDS - 1) * kill / KILLS)
        assert rounds_begun(devices) < ROUNDS, "the last kill came before the last round"
        coordinators.serve()
        coordinators.finished("killed")
    whole_run(coordinators, "killed", ROUNDS)
    assert coordinators.model("killed") == undisturbed
    computed = expected(ROUNDS, bundle, SAMPLES)
    np.testing.assert_allclose(model_values(undisturbed, bundle.manifest.tensors), computed, rtol=1e-5, atol=1e-6)


def live_and_die(
    coordinators: Coordinators, devices: Sequence[LightDevice], chance: random.Random, rounds: float
) -> None:
    """Kills the coordinator at a random moment of its start or of its work, early once so many rounds have begun."""
    if coordinators.process is None:
        process = coordinators.launch()
        if chance.random() < KILLED_WHILE_IT_STARTS:
            time.sleep(chance.uniform(0.0, 0.6))
            coordinators.kill()
            return
        assert process.stdout
        process.stdout.readline()
    end = time.monotonic() + chance.uniform(0.0, 1.0)
    while time.monotonic() < end and rounds_begun(devices) < rounds:
        time.sleep(0.002)
    time.sleep(chance.uniform(0.0, 0.05))  # anywhere within what follows upon a receipt
    coordinators.kill()
