"""Connections that are slow, cut off and reset at random: a run over them ends with the same model."""

from __future__ import annotations

import random

import pytest

from tests.faults.bad_network import TROUBLES, bad_network
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, whole_run

pytestmark = pytest.mark.slow

ROUNDS = 4
ELEMENTS = 500_000  # 2 MB: an update is two parts, and most connections break within one


def test_a_run_over_a_bad_network_ends_with_the_undisturbed_model(coordinators: Coordinators) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    bundle = bundle_of(ELEMENTS)
    coordinators.serve()
    coordinators.start_run("undisturbed", bundle, ROUNDS, len(SAMPLES))
    with devices_at(coordinators):
        undisturbed = coordinators.finished("undisturbed").model
    coordinators.start_run("disturbed", bundle, ROUNDS, len(SAMPLES))
    with bad_network(coordinators.ports[0], seed) as network:
        with devices_at(coordinators, f"127.0.0.1:{network.port}"):
            ended = coordinators.finished("disturbed")
        assert min(network.seen[trouble] for trouble in TROUBLES) > 0, network.seen
    assert ended.model == undisturbed
    whole_run(coordinators, "disturbed", ROUNDS)
