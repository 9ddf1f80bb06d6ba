"""Releases in the database: consecutive versions of a name, whose files stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.bundle.manifest import GRAPH_PLAN_FILE, MANIFEST_FILE, PLAN_FILE, InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.models.release_manifest import WEIGHTS_FILE
from tests.coordinator.storage.conftest import Open
from tests.support.refusals import refused
from tests.support.releases import NAME, deployment, ref, release_record
from tests.support.store_records import RUN, committed


@pytest.fixture(autouse=True)
def run(store: Store) -> None:
    store.add_run(RUN)


def test_versions_follow_each_other(store: Store, open_store: Open) -> None:
    first, second = release_record(1), release_record(2)
    for record in (first, second, release_record(1, name="faces")):
        store.releases.add(record)
    restarted = open_store()
    assert restarted.releases.all(NAME) == [first, second]
    assert [record.manifest.name for record in restarted.releases.all()] == [NAME, NAME, "faces"]
    assert restarted.releases.one(NAME) == restarted.releases.one(NAME, 2) == second
    assert restarted.releases.one(NAME, 1) == first


@pytest.mark.parametrize("version", [1, 2, 4])
def test_another_version_than_the_next_is_rejected(store: Store, version: int) -> None:
    store.releases.add(release_record(1))
    store.releases.add(release_record(2))
    with refused(AlreadyExists, "version", version):
        store.releases.add(release_record(version, created=7))


def test_a_repeated_request_changes_nothing(store: Store) -> None:
    store.releases.add(release_record(1))
    store.releases.add(release_record(2))
    store.releases.add(release_record(1))
    assert len(store.releases.all()) == 2


def test_unknown_releases_are_not_found(store: Store) -> None:
    assert store.releases.all(NAME) == []
    with refused(NotFound, "release", "digits"):
        store.releases.one(NAME)
    store.releases.add(release_record(1))
    with refused(NotFound, "release", "digits"):
        store.releases.one(NAME, 3)


def test_all_versions_of_a_name_have_one_interface(store: Store) -> None:
    store.releases.add(release_record(1))
    with refused(InvalidInput, "input", "image 24x24x3"):
        store.releases.add(release_record(2, input=InputSpec(kind="image", shape=(24, 24, 3))))
    with refused(InvalidInput, "labels", "dog, cat", "cat, dog"):
        store.releases.add(release_record(2, target=class_target(("dog", "cat"))))
    store.releases.add(release_record(1, name="other", target=class_target(("dog", "cat"))))


def test_versions_of_values_may_differ_in_their_scales_only(store: Store) -> None:
    load = TargetSpec(kind="values", names=("load",), shape=(24, 1), units=("kW",), mean=(21.5,), deviation=(4.0,))
    store.releases.add(release_record(1, target=load))
    store.releases.add(release_record(2, target=replace(load, mean=(20.75,))))
    with refused(InvalidInput, "values", "load (W) of shape 24x1", "load (kW) of shape 24x1"):
        store.releases.add(release_record(3, target=replace(load, units=("W",))))


def test_a_release_has_the_weights_and_the_bundle_of_its_run(store: Store) -> None:
    plan = {MANIFEST_FILE: RUN.manifest, PLAN_FILE: ref("plan"), WEIGHTS_FILE: RUN.initial}
    with refused(NotFound, "run", "other"):
        store.releases.add(release_record(run="other"))
    with refused(NotFound, "run", "digits"):
        store.releases.add(release_record(round=1))
    with refused(InvalidInput, "weights"):
        store.releases.add(release_record(plan={**plan, WEIGHTS_FILE: ref("other")}))
    with refused(InvalidInput, GRAPH_PLAN_FILE):
        store.releases.add(release_record(plan={**plan, GRAPH_PLAN_FILE: ref("graphs of another run")}))
    with refused(InvalidInput, "bundle"):
        store.releases.add(release_record(plan={**plan, MANIFEST_FILE: ref("other")}))
    committed(store, 1)
    weights = store.global_state(RUN.run, 1)["model"]
    store.releases.add(release_record(round=1, plan={**plan, WEIGHTS_FILE: weights}))


def test_the_files_of_a_release_outlive_its_run(store: Store) -> None:
    record = release_record(1)
    store.releases.add(record)
    files = {*record.manifest.blobs, record.ref, record.signature}
    store.end_run(RUN.run, "finished")
    released = store.delete_run(RUN.run)
    assert not files.intersection(released)
    assert all(store.refers_to(blob.sha256) for blob in files)
    assert not store.refers_to(ref("another").sha256)


def test_devices_may_fetch_only_the_files_of_releases_deployed_to_them(store: Store) -> None:
    store.end_run(RUN.run, "finished")
    for version in (1, 2):
        store.releases.add(release_record(version))
    store.devices.seen("cam-1", {})
    store.deployments.deploy(deployment(version=2))
    deployed, other = release_record(2), release_record(1)
    for blob in (*deployed.manifest.blobs, deployed.ref, deployed.signature):
        assert store.deployments.may_fetch("cam-1", blob.sha256)
        assert not store.deployments.may_fetch("cam-2", blob.sha256)
    assert not store.deployments.may_fetch("cam-1", other.ref.sha256)
