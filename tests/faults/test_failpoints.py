"""Kills and full disks before and after every point where the coordinator makes something durable."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from typing import Literal

import pytest

from moonfed.errors import AlreadyExists, Unavailable
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, until, whole_run
from tests.faults.program import Fault
from tests.support.coordinator import Device

pytestmark = pytest.mark.slow

STORAGE = "moonfed.coordinator.storage."
REGISTRY = STORAGE + "device_registry:DeviceRegistry."
REPORTS = "moonfed.coordinator.storage.device_reports:DeviceReports."
STORE = STORAGE + "store:Store."
SPOOL = STORAGE + "spool:Spool."
BLOBS = "moonfed.blobs.store:"
# Devices connect, the round is recorded, updates are received and put to their places; those that wait at the same time
# get their receipts together; the round takes no more, the new model becomes a blob, the round is committed, its spool
# is deleted. `skip` others: in the middle of a cohort.
COMMIT_POINTS = [
    (REGISTRY + "seen", 1),
    (STORE + "open_round", 0),
    (BLOBS + "Incoming.finish", 1),
    (SPOOL + "put", 1),
    (SPOOL + "sync", 0),
    (REPORTS + "record_all", 0),
    (STORE + "begin_reducing", 0),
    (BLOBS + "BlobDirectory.put_file", 0),
    (STORE + "commit_round", 0),
    (SPOOL + "delete", 0),
]
PARTS = [(STORAGE + "blobs.references:add", 0), (STORAGE + "blobs.references:prune", 0)]  # of a commit, all or none
# On a database server and an object store the new model becomes an object, and so does every update before it has its
# receipt; and whoever was killed leaves its leases to the next start.
TRANSACTIONS = [point for point in COMMIT_POINTS if point[0].startswith((REGISTRY, STORE))]
OBJECTS = [(STORAGE + "shared_spool:SharedSpool.put", 1), (STORAGE + "blobs.object_store:ObjectBlobStore.put_file", 0)]
SHARED_POINTS = [
    (STORE + "inherit", 0),
    *TRANSACTIONS,
    *OBJECTS,
    (STORAGE + "shared_spool:SharedSpool.delete", 0),
]
MOMENTS: tuple[Literal["before", "after"], ...] = ("before", "after")
# A run's row, its bundle's and its beginning are recorded together.
UNSTARTED = [
    Fault(at=STORE + "add_run"),
    Fault(at=STORAGE + "blobs.references:add"),
    Fault(at=STORAGE + "blobs.references:add", skip=1),
]
STARTED = Fault(at=STORE + "add_run", when="after")
BUNDLE = bundle_of(50)


def test_a_kill_before_or_after_any_commit_point_costs_no_update(coordinators: Coordinators) -> None:
    no_kill_costs_an_update(coordinators, [*COMMIT_POINTS, *PARTS])


@pytest.mark.timeout(480)
def test_a_kill_around_any_shared_commit_point_costs_no_update(shared_coordinators: Coordinators) -> None:
    no_kill_costs_an_update(shared_coordinators, SHARED_POINTS)


def no_kill_costs_an_update(coordinators: Coordinators, points: Sequence[tuple[str, int]]) -> None:
    faults = [Fault(at=at, skip=skip, when=when) for (at, skip), when in product(points, MOMENTS)]
    rounds = len(faults) + 1
    ends = [Fault(at=STORE + "end_run", when=when) for when in MOMENTS]
    coordinators.serve()
    coordinators.start_run("undisturbed", BUNDLE, rounds, len(SAMPLES))
    with devices_at(coordinators):
        undisturbed = coordinators.finished("undisturbed").model
        coordinators.kill()
        coordinators.serve()
        coordinators.start_run("killed", BUNDLE, rounds, len(SAMPLES))
        coordinators.kill()
        for fault in [*faults, *ends]:
            coordinators.launch(fault)
            coordinators.died(fault)
        coordinators.serve()
        ended = coordinators.finished("killed")
    assert ended.status == "finished"
    whole_run(coordinators, "killed", rounds)
    assert ended.model == undisturbed


@pytest.mark.parametrize("fault", [*UNSTARTED, STARTED])
def test_a_kill_as_a_run_starts_leaves_none_or_one(coordinators: Coordinators, fault: Fault) -> None:
    coordinators.serve(fault)
    with pytest.raises(Unavailable):
        coordinators.start_run("r", BUNDLE, 1, len(SAMPLES))
    coordinators.died()
    coordinators.serve()
    with pytest.raises(AlreadyExists) if fault == STARTED else nullcontext():
        coordinators.start_run("r", BUNDLE, 1, len(SAMPLES))
    with devices_at(coordinators):
        assert coordinators.finished("r").round == 1
    whole_run(coordinators, "r", 1)


@pytest.mark.parametrize("when", MOMENTS)
def test_a_kill_as_a_round_is_abandoned_leaves_it_open_or_abandoned(
    coordinators: Coordinators, when: Literal["before", "after"]
) -> None:
    coordinators.serve()
    coordinators.start_run("r", BUNDLE, 1, 1, deadline=2.0)  # in which the assignment arrives
    before = coordinators.run("r").model
    coordinators.kill()
    coordinators.serve(Fault(at=STORE + "abandon_round", when=when))
    identity = load_identity(coordinators.tmp / "cam-1")
    with transport.open_channel(identity.address, identity) as channel:
        assert Device("cam-1", channel).connect().assignment().attempt == 1
        coordinators.died()
    coordinators.serve()
    with transport.open_channel(identity.address, identity) as channel:
        session = Device("cam-1", channel).connect()
        attempt = session.assignment().attempt
        assert attempt == 1 if when == "before" else attempt == 2
        until(lambda: len(coordinators.rounds("r")) >= 2)
        session.leave()
    listed = coordinators.rounds("r")
    assert [entry.attempt for entry in listed] == list(range(1, len(listed) + 1))
    assert {entry.status for entry in listed} == {"abandoned"}
    assert coordinators.run("r").model == before


@pytest.mark.parametrize("when", MOMENTS)
def test_a_kill_as_leases_are_inherited_leaves_nobody_waiting_for_their_end(
    shared_coordinators: Coordinators, when: Literal["before", "after"]
) -> None:
    store = shared_coordinators.store
    assert store
    shared_coordinators.serve()
    shared_coordinators.start_run("r", BUNDLE, 2, len(SAMPLES))
    shared_coordinators.kill()
    with store._transactions.write() as connection:
        connection.exec_driver_sql("UPDATE leases SET expires = expires + 3600")
    inheriting = Fault(at=STORE + "inherit", when=when)
    shared_coordinators.launch(inheriting)
    shared_coordinators.died(inheriting)
    with store._transactions.write() as connection:
        connection.exec_driver_sql("UPDATE leases SET expires = expires + 3600")
    shared_coordinators.serve()
    with devices_at(shared_coordinators):
        shared_coordinators.finished("r")
    whole_run(shared_coordinators, "r", 2)


def test_a_disk_that_is_full_for_a_moment_costs_no_update_and_no_restart(coordinators: Coordinators) -> None:
    faults = [Fault(at=at, skip=skip, do="full", times=2) for at, skip in COMMIT_POINTS if not at.endswith("delete")]
    no_trouble_costs_an_update(coordinators, [[fault] for fault in faults])


@pytest.mark.timeout(480)
def test_a_brief_outage_of_a_server_costs_no_update_and_no_restart(shared_coordinators: Coordinators) -> None:
    """A connection that breaks right after a transaction leaves open whether it was committed."""
    troubles = [
        [Fault(at=at, skip=skip, when=when, do="database away", times=2) for at, skip in TRANSACTIONS]
        for when in MOMENTS
    ]
    objects = [Fault(at=at, skip=skip, do="objects away", times=2) for at, skip in OBJECTS]
    no_trouble_costs_an_update(shared_coordinators, [*troubles, objects])


def no_trouble_costs_an_update(coordinators: Coordinators, troubles: Sequence[Sequence[Fault]]) -> None:
    coordinators.serve()
    coordinators.start_run("undisturbed", BUNDLE, 2, len(SAMPLES))
    with devices_at(coordinators):
        undisturbed = coordinators.finished("undisturbed").model
        for number, faults in enumerate(troubles):
            run = f"trouble-{number}"
            coordinators.kill()
            coordinators.serve(*faults)
            coordinators.start_run(run, BUNDLE, 2, len(SAMPLES))
            assert coordinators.finished(run).model == undisturbed, faults
            assert [coordinators.log.count(fault.message) for fault in faults] == [fault.times for fault in faults]
            rounds = [entry for entry in coordinators.rounds(run) if entry.counted]
            assert [(entry.round, list(entry.counted)) for entry in rounds] == [
                (1, sorted(SAMPLES)),
                (2, sorted(SAMPLES)),
            ]
