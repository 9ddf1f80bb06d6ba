"""State directories as a kill leaves them at each commit point: the old state or the new one, never a mixture."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.events import Reduce
from moonfed.coordinator.runs.close_round import RoundResult, reduce_round
from moonfed.coordinator.runs.global_state import load_global_states
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.transport import client as transport
from tests.support import coordinator
from tests.support.coordinator import model_bytes, model_values
from tests.support.interrupted_run import FIRST, Left, expect_round_1

pytestmark = pytest.mark.slow


def reduced(left: Left) -> RoundResult:
    """Reduce the closed round as a coordinator does before the commit."""
    manifest = coordinator.make_bundle().manifest
    command = Reduce(round=1, attempt=1, devices=("cam-1", "cam-2"))
    states = load_global_states(left.storage.store, left.storage.blobs, left.record, manifest)
    return reduce_round(left.storage, FIRST, command, manifest, left.record.settings, global_states=states)


def test_killed_after_the_last_receipt(state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        (state / "authority").mkdir()
    expect_round_1(state)


def test_killed_while_reducing_before_the_commit(state: Path) -> None:
    with open_storage(state) as storage:
        left = Left(storage)
        reduced(left)
        (storage.spool.attempt_directory(FIRST) / "model").write_bytes(b"half a model")
    expect_round_1(state)


def test_killed_between_the_commit_and_the_end(state: Path) -> None:
    with open_storage(state) as storage:
        left = Left(storage)
        reduction = reduced(left)
        storage.store.commit_round(FIRST, ["cam-1", "cam-2"], reduction.blobs, metrics={}, metrics_before={})
    expect_round_1(state)


def test_killed_between_the_spooled_update_and_its_receipt(tmp_path: Path, state: Path) -> None:
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            identity = coordinator.enrol(tmp_path / "cam-1", calls.token(), "cam-1")
    with open_storage(state) as storage:
        Left(storage)
        again = AttemptId(run="r", round=1, attempt=2)
        storage.store.abandon_round(FIRST, "because")
        storage.store.open_round(again, ["cam-1"])
        checked = state / "checked"
        checked.write_bytes(model_bytes(9.0))
        storage.spool.put(again, "cam-1", {"model": checked})
    with coordinator.coordinator_in_process(state) as ports, ExitStack() as stack:
        calls = coordinator.operator(state, ports.fleet)
        stack.enter_context(calls.channel)
        assert not calls.run("r").open_round.reported, "without a receipt it does not count"
        channel = stack.enter_context(transport.open_channel(f"127.0.0.1:{ports.fleet}", identity))
        device = coordinator.Device("cam-1", channel)
        device.submit(device.connect().assignment(), model_bytes(3.0))
        run = list(calls.watch("r"))[-1].run
        np.testing.assert_array_equal(model_values(calls.model(run.model)), np.float32(3.0))


def test_killed_between_the_abandonment_and_the_end_of_its_spool(state: Path) -> None:
    with open_storage(state) as storage:
        Left(storage)
        storage.store.abandon_round(FIRST, "because")
        assert storage.spool.update_file(FIRST, "cam-1", "model").is_file()
    with coordinator.coordinator_in_process(state) as ports:
        calls = coordinator.operator(state, ports.fleet)
        with calls.channel:
            run = calls.run("r")
            assert not run.HasField("open_round")
            assert run.waiting == "waiting for 2 more devices: 0 eligible, 2 needed"
            assert [entry.reason for entry in calls.rounds("r")] == ["because"]
    assert not list((state / "spool").glob("*/*"))
    with open_storage(state) as storage:
        assert recovered_state(storage.store, "r").attempt == 2


def test_killed_after_everything(state: Path) -> None:
    with open_storage(state) as storage:
        left = Left(storage)
        reduction = reduced(left)
        storage.store.commit_round(FIRST, ["cam-1", "cam-2"], reduction.blobs, metrics={}, metrics_before={})
        storage.spool.delete(FIRST)
        storage.store.end_run("r", "finished")
    expect_round_1(state)


def test_a_kill_before_or_after_any_file_of_the_first_start_leaves_a_directory_that_starts(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Path] = []
    replace = os.replace

    def copy() -> None:
        copies.append(tmp_path / str(len(copies)))
        shutil.copytree(state, copies[-1])

    def replaced(old: Path, new: Path) -> None:
        copy()
        replace(old, new)
        copy()

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replaced)
        with coordinator.coordinator_in_process(state):
            pass
    assert len(copies) == 2 * 9, "the mark on the blobs, the authority's, the server's and the operator's files"
    for directory in copies:
        with coordinator.coordinator_in_process(directory) as ports:
            calls = coordinator.operator(directory, ports.fleet)
            with calls.channel:
                assert calls.token()
