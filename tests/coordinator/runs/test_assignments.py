"""Assignments: a round's settings, its global state without the server rule's memory, and the device's last count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import PERSONAL, required_files
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.runs.assignments import GlobalState, build_assignment, devices_keep_state
from moonfed.encodings import ENCODED_MODEL
from moonfed.fleet.assignment import Assignment
from moonfed.plan.training_spec import TrainingSpec
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import SCAFFOLD, make_bundle, model_bytes
from tests.support.store_records import FIRST, MODEL, RUN

PERSONAL_HEAD = {
    "device_state": {PERSONAL: (TensorSpec("head", (4,), "parameter"),)},
    "files": dict.fromkeys(required_files(frozen=(), personal=("head",)), ref_of_bytes(b"")),
}
SECOND = replace(FIRST, round=2)


def test_an_assignment_contains_the_schedules_values_and_the_views(fleet: Fleet) -> None:
    device = fleet.device("cam-1")
    bundle = make_bundle(
        schedules={"mu": ((1, 1.0), (3, 0.5))},
        training=TrainingSpec(epochs=2, batch_size=8, views=4, hyperparameters={"learning_rate": 0.1, "mu": 1.0}),
    )
    fleet.start(rounds=3, bundle=bundle)
    session, seen = device.connect(), []
    for _ in range(3):
        work = session.assignment()
        assert work.training.views == 4
        seen.append(dict(work.training.hyperparameters))
        device.submit(work, model_bytes(1.0))
    assert seen == [{"learning_rate": 0.1, "mu": mu} for mu in (1.0, 0.75, 0.5)]


def built(bundle: Bundle, state: GlobalState, device: str = "a", **fields: Any) -> Assignment:
    record = replace(RUN, manifest=bundle.ref, settings=RunSettings(rounds=3, seed=5, **fields))
    return build_assignment(SECOND, device, record, bundle.manifest, state)


def test_devices_are_sent_the_roles_of_their_method_and_no_memory_of_the_server_rule() -> None:
    names = ("model", "variate", "momentum")
    state = GlobalState(blobs={name: ref_of_bytes(name.encode()) for name in names}, counted={"a": FIRST})
    work = built(make_bundle(**SCAFFOLD), state)
    assert (work.id, work.seed, work.counted) == (SECOND, 5, FIRST)
    assert work.blobs == {name: state.blobs[name] for name in ("model", "variate")}
    assert built(make_bundle(**SCAFFOLD), state, device="b").counted is None
    assert set(built(make_bundle(), state).blobs) == {"model"}


def test_devices_are_sent_the_encoded_model_in_place_of_the_model() -> None:
    encoded = ref_of_bytes(b"in int8")
    state = GlobalState(blobs={"model": MODEL, ENCODED_MODEL: encoded})
    assert built(make_bundle(), state).blobs == {"model": encoded}


def test_a_commit_replaces_the_counts_of_its_devices_and_all_blobs() -> None:
    before = GlobalState(blobs={"model": MODEL, "momentum": MODEL}, counted={"a": FIRST, "b": FIRST})
    after = before.successor({"b": SECOND}, {"model": MODEL}, 0.5)
    assert (after.blobs, after.counted, after.clip_norm) == ({"model": MODEL}, {"a": FIRST, "b": SECOND}, 0.5)


@pytest.mark.parametrize(
    ("bundle", "up", "expected"),
    [
        ({}, "float32", False),
        (SCAFFOLD, "float32", True),
        (PERSONAL_HEAD, "float32", True),
        ({}, "int8", True),
        ({}, "float32+zstd", False),
    ],
)
def test_devices_keep_state_for_their_method_their_personal_tensors_or_a_lossy_encoding(
    bundle: dict[str, Any], up: str, expected: bool
) -> None:
    settings = RunSettings(rounds=1, uplink_encoding=up)
    assert devices_keep_state(make_bundle(**bundle).manifest, settings) == expected
