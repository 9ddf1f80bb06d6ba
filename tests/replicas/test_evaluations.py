"""Evaluations on two replicas: each asks its own devices, and one continues when the other is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, until
from tests.replicas.balancer import balancer
from tests.replicas.pair import two_replicas
from tests.support.postgresql import Server
from tests.support.scoring_devices import evaluate, evaluations, require_complete, scoring_devices

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.usefixtures("forked_programs")]
ROUNDS = 6


@pytest.fixture
def two_coordinators(postgresql_server: Server, store_url: str, tmp_path: Path) -> Iterator[list[Coordinators]]:
    """Two replicas with a copy of one authority, and an enrolled fleet."""
    with two_replicas(tmp_path, postgresql_server.new_database(), store_url, list(SAMPLES)) as replicas:
        yield replicas


def test_devices_of_both_replicas_answer_and_one_continues_without_the_other(
    two_coordinators: list[Coordinators], tmp_path: Path
) -> None:
    first, second = two_coordinators
    with (
        balancer([first.ports[0], second.ports[0]], tmp_path) as port,
        scoring_devices(first, [f"127.0.0.1:{port}", f"127.0.0.1:{second.ports[0]}"]) as devices,
    ):
        first.start_run("run", bundle_of(1000), ROUNDS, len(SAMPLES))
        until(lambda: second.run("run").round == ROUNDS)
        for replica in (first, second):  # both are asked, for the same evaluations
            calls = replica.operator()
            with calls.channel:
                for round_ in range(ROUNDS + 1):
                    evaluate(calls, "run", round_)
        until(lambda: sum(len(device.acknowledged) for device in devices) > len(SAMPLES))
        first.kill()
        until(lambda: all_ended(second))
        require_complete(evaluations(second, "run"), ROUNDS)
        for device in devices:
            assert not device.problems


def all_ended(replica: Coordinators) -> bool:
    found = evaluations(replica, "run")
    return len(found) == ROUNDS + 1 and all(entry.closed for entry in found)
