"""A killed coordinator resumes at once on restart, without waiting for its own leases to expire.

Two processes on copies of one directory hold no run together all the same.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.coordinator.storage.store import Store
from moonfed.v1 import control_pb2
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, enrol_all, expected, until
from tests.replicas.pair import PROGRAM
from tests.support.coordinator import ask, model_values
from tests.support.ports import free_ports
from tests.support.postgresql import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
BUNDLE = bundle_of(1000)


@contextmanager
def begun(tmp: Path, server: Server, blobs: str = "") -> Iterator[tuple[Coordinators, Store]]:
    """A coordinator with a run under way, and the database as seen by a third party."""
    database = server.new_database()
    store = open_store(database, used_before=False)
    arguments = ["--database", database, *(["--blobs", blobs] if blobs else [])]
    environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    (tmp / "first").mkdir()
    first = Coordinators(tmp / "first", program=PROGRAM, arguments=arguments, environment=environment)
    try:
        first.serve()
        enrol_all(first, list(SAMPLES))
        first.start_run("run", BUNDLE, 100_000, len(SAMPLES))
        yield first, store
    finally:
        first.kill()
        store.close()


def three_more_rounds(store: Store) -> None:
    """Wait until the run continues."""
    begins = store.run_summaries.load()["run"].round
    until(lambda: store.run_summaries.load()["run"].round >= begins + 3)


def stopped_undisturbed(store: Store, coordinator: Coordinators) -> None:
    """Assert that every device counted once in each round, and that the model follows from that."""
    calls = coordinator.operator()
    with calls.channel:
        ask(calls.control.StopRun, control_pb2.StopRunRequest(run="run"))
    until(lambda: store.run("run").status == "stopped")
    past = [found for found in store.past_rounds("run", None, 100_000) if found.status == "committed"]
    everybody = [(round_, sorted(SAMPLES)) for round_ in range(1, len(past) + 1)]
    assert [(found.id.round, sorted(found.counted)) for found in past] == everybody
    found = model_values(coordinator.model("run"), BUNDLE.manifest.tensors)
    np.testing.assert_allclose(found, expected(len(past), BUNDLE, SAMPLES), rtol=1e-4, atol=1e-5)


def test_a_single_coordinator_resumes_immediately_after_a_kill(tmp_path: Path, postgresql_server: Server) -> None:
    with begun(tmp_path, postgresql_server) as (alone, store):
        before = store.run_summaries.load()["run"].holder
        with devices_at(alone):
            three_more_rounds(store)
            alone.kill()
            with store._transactions.write() as connection:
                connection.exec_driver_sql("UPDATE leases SET expires = expires + 3600")
            alone.serve()
            three_more_rounds(store)
        assert store.run_summaries.load()["run"].holder != before, "each start has a name of its own"
        stopped_undisturbed(store, alone)


def test_a_copy_of_a_directory_takes_the_runs_and_the_original_follows(
    tmp_path: Path, postgresql_server: Server, store_url: str
) -> None:
    with begun(tmp_path, postgresql_server, store_url) as (first, store):
        (tmp_path / "second").mkdir()
        shutil.copytree(first.state, tmp_path / "second" / "state", ignore=shutil.ignore_patterns("spool", "incoming"))
        second = replace(first, tmp=tmp_path / "second", ports=free_ports(2), process=None)
        try:
            with devices_at(first):
                three_more_rounds(store)
                second.serve()
                until(lambda: "'run' is driven by" in first.log)
                three_more_rounds(store)
            stopped_undisturbed(store, second)
        finally:
            second.kill()
