"""A run over two replicas, one of which is killed or paused in mid-round, ends with the model of an undisturbed one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.v1 import control_pb2
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, enrol_all, expected, until
from tests.replicas.pair import Pair, go_on, pair_of_replicas, pause, start
from tests.support.coordinator import ask, model_values
from tests.support.postgresql import Server
from tests.support.prometheus import value

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ROUNDS, STOPPED = 10, "stopped"
BUNDLE = bundle_of(1000)
EVERYBODY = [(round_, sorted(SAMPLES)) for round_ in range(1, ROUNDS + 1)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The last model of a run on one coordinator with its own database."""
    alone = Coordinators(tmp_path_factory.mktemp("alone"))
    try:
        alone.serve()
        enrol_all(alone, list(SAMPLES))
        alone.start_run("run", BUNDLE, ROUNDS, len(SAMPLES))
        with devices_at(alone):
            alone.finished("run")
        content = alone.model("run")
    finally:
        alone.kill()
    computed = expected(ROUNDS, BUNDLE, SAMPLES)
    np.testing.assert_allclose(model_values(content, BUNDLE.manifest.tensors), computed, rtol=1e-5, atol=1e-6)
    return content


@pytest.fixture(scope="module")
def pair(postgresql_server: Server, store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    database = postgresql_server.new_database()
    store = open_store(database, used_before=False)
    try:
        with pair_of_replicas(tmp_path_factory.mktemp("pair"), store, database, store_url) as made:
            yield made
            problems = [problem for device in made.devices for problem in device.problems]
            assert [problem for problem in problems if STOPPED not in problem] == []
    finally:
        store.close()


def ended_as(pair: Pair, run: str, model: bytes) -> None:
    """Assert that the run counted every device once in each round, and that both replicas serve the same model."""
    pair.finished(run)
    assert pair.rounds(run) == EVERYBODY
    for replica in pair.replicas:
        assert replica.model(run) == model


def test_devices_spread_over_two_replicas(pair: Pair, undisturbed: bytes) -> None:
    places = pair.store.online_devices.all
    until(lambda: len(places()) == len(SAMPLES))
    assert len({place.replica for place in places().values()}) == 2, "the balancer takes turns"
    start(pair.replicas[1], "calm", BUNDLE, ROUNDS)
    holder, follower = pair.of("calm")
    assert holder is pair.replicas[1], "whoever is asked starts a run and drives it"
    calls = follower.operator()
    with calls.channel:
        kinds = [event.kind for event in calls.watch("calm")]
    ended_as(pair, "calm", undisturbed)
    assert kinds[-1] == "ended"
    assert kinds.count("round_committed") >= ROUNDS - 1, "a follower tells of them, too"
    assert "committed with" not in follower.log
    ports = [replica.ready["metrics_port"] for replica in (holder, follower)]
    until(lambda: value(ports[0], "rounds_total", outcome="committed") == ROUNDS)
    assert value(ports[1], "rounds_total", outcome="committed") == 0, "each replica exports what it has done"
    assert sum(value(port, "devices_online") for port in ports) == len(SAMPLES)
    assert [value(port, "replicas") for port in ports] == [2, 2]


def test_the_holder_is_killed_in_mid_round(pair: Pair, undisturbed: bytes) -> None:
    start(pair.replicas[0], "holder-killed", BUNDLE, ROUNDS)
    pair.middle_of_round("holder-killed", 4)
    holder, follower = pair.of("holder-killed")
    holder.kill()
    pair.middle_of_round("holder-killed", 6)
    until(lambda: value(follower.ready["metrics_port"], "replicas") == 1)
    holder.serve()
    ended_as(pair, "holder-killed", undisturbed)
    assert "'holder-killed' is now driven" in follower.log


def test_the_follower_is_killed_in_mid_round(pair: Pair, undisturbed: bytes) -> None:
    start(pair.replicas[0], "follower-killed", BUNDLE, ROUNDS)
    pair.middle_of_round("follower-killed", 4)
    _, follower = pair.of("follower-killed")
    follower.kill()
    pair.middle_of_round("follower-killed", 6)
    follower.serve()
    ended_as(pair, "follower-killed", undisturbed)
    assert "run 'follower-killed' is now driven" not in follower.log


def test_the_holder_is_paused_beyond_its_lease(pair: Pair, undisturbed: bytes) -> None:
    start(pair.replicas[0], "paused", BUNDLE, ROUNDS)
    pair.middle_of_round("paused", 4)
    holder, follower = pair.of("paused")
    pause(holder)
    until(lambda: "'paused' is now driven" in follower.log)
    go_on(holder)
    ended_as(pair, "paused", undisturbed)
    until(lambda: "'paused' is driven by" in holder.log)


def test_a_run_is_stopped_at_any_replica(pair: Pair) -> None:
    start(pair.replicas[0], STOPPED, BUNDLE, 1000)
    pair.middle_of_round(STOPPED, 1)
    _, follower = pair.of(STOPPED)
    calls = follower.operator()
    with calls.channel:
        reply = ask(calls.control.StopRun, control_pb2.StopRunRequest(run=STOPPED))
    assert reply.status == "stopped"


def test_another_authority_is_rejected(pair: Pair, tmp_path: Path) -> None:
    ours = pair.replicas[0]
    stranger = Coordinators(tmp_path, program=ours.program, arguments=ours.arguments, environment=ours.environment)
    process = stranger.launch()
    assert process.wait(60) != 0
    assert "this state directory's authority" in stranger.log
    stranger.kill()
