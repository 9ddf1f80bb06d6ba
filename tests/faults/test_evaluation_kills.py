"""A coordinator that is killed at random moments of evaluations on devices loses no answer and counts none twice."""

from __future__ import annotations

import random
import time

import pytest

from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, until
from tests.faults.kills import kills
from tests.support.scoring_devices import evaluate, evaluations, require_complete, scoring_devices

pytestmark = pytest.mark.slow

ROUNDS, RUN = 8, "run"


@pytest.mark.timeout(120 + 5 * kills(5))
def test_every_device_counts_once_in_each_evaluation_over_many_kills(coordinators: Coordinators) -> None:
    survives(coordinators, kills(5))


@pytest.mark.timeout(120 + 9 * kills(3))
def test_the_same_on_shared_storage(shared_coordinators: Coordinators) -> None:
    survives(shared_coordinators, kills(3))


def survives(coordinators: Coordinators, times: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    coordinators.serve()
    with scoring_devices(coordinators, [f"127.0.0.1:{coordinators.ports[0]}"]) as devices:
        coordinators.start_run(RUN, bundle_of(1000), ROUNDS, len(SAMPLES))
        coordinators.finished(RUN)
        ask_for_all(coordinators)
        for kill in range(1, times + 1):
            due = len(SAMPLES) * (ROUNDS + 1) * kill // (times + 1)
            end = time.monotonic() + chance.uniform(0.1, 1.0)
            while time.monotonic() < end and sum(len(device.acknowledged) for device in devices) < due:
                time.sleep(0.002)
            coordinators.kill()
            coordinators.serve()
        until(lambda: all_ended(coordinators))
        require_complete(evaluations(coordinators, RUN), ROUNDS)
        for device in devices:
            asked = {task.key for task in device.asked}
            assert asked == {(RUN, round_, 1) for round_ in range(ROUNDS + 1)}
            assert not device.problems


def ask_for_all(coordinators: Coordinators) -> None:
    calls = coordinators.operator()
    with calls.channel:
        for round_ in range(ROUNDS + 1):
            evaluate(calls, RUN, round_)
            evaluate(calls, RUN, round_)


def all_ended(coordinators: Coordinators) -> bool:
    found = evaluations(coordinators, RUN)
    return len(found) == ROUNDS + 1 and all(entry.closed for entry in found)
