"""A damaged global state: the previous one replaces it, with an alarm, and damaged files are never used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.control.runs import Run
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.records import AttemptId, RoundRecord
from moonfed.coordinator.storage.opening import open_storage
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import Unavailable
from moonfed.fleet.assignment import Assignment
from moonfed.server_rules.fedavgm import FedAvgM
from tests.support.coordinator import SCAFFOLD, make_bundle
from tests.support.in_process_coordinator import ALL, NAMES, device_info, opened, party, play, started, trained, watched

LEAST = replace(ALL, keep_last=1, keep_every=0)  # what may be kept least still has the state before
BUNDLE = make_bundle(**SCAFFOLD, server_rule=FedAvgM())


async def rounds_of(coordinator: Coordinator, directory: Path, last: int) -> None:
    """Let every device participate until that round is committed."""
    parties = [asyncio.create_task(party(coordinator, name, directory, last)) for name in NAMES]
    await watched(coordinator, "round_committed", last)
    await asyncio.gather(*parties)


async def ended(coordinator: Coordinator) -> Run:
    """Wait for the end of the run, and return it."""
    while (await coordinator.operators.run("run")).status == "running":
        await asyncio.sleep(0.02)
    return await coordinator.operators.run("run")


def committed(coordinator: Coordinator) -> RoundRecord:
    newest = coordinator.storage.store.latest_round("run", "committed")
    assert newest
    return newest


def damage(coordinator: Coordinator, ref: BlobRef) -> Path:
    path = coordinator.storage.blobs.local(ref)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    return path


async def assigned(coordinator: Coordinator) -> Assignment:
    """Return the devices' next assignments."""
    async with coordinator.devices.connect(device_info(NAMES[0])) as session:
        others = [coordinator.devices.connect(device_info(name)) for name in NAMES[1:]]
        for other in others:
            await other.__aenter__()
        try:
            return await anext(session.assignments())
        finally:
            for other in others:
                await other.__aexit__(None, None, None)


@pytest.mark.parametrize("how", ["damaged", "gone"])
@pytest.mark.parametrize("role", ["model", "momentum", "variate"])
def test_a_damaged_file_of_the_newest_global_state_is_replaced_by_the_previous_one(
    tmp_path: Path, role: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    state, states = tmp_path / "state", dict[int, Mapping[str, BlobRef]]()

    async def scenario() -> None:
        async with opened(state) as coordinator:
            await started(coordinator, BUNDLE, LEAST)
            for round_ in (1, 2):
                await rounds_of(coordinator, tmp_path, round_)
                states[round_] = committed(coordinator).blobs
            await assigned(coordinator)  # round 3 has begun with the state that is damaged now
            path = damage(coordinator, states[2][role])
            if how == "gone":
                path.unlink()
        async with opened(state) as coordinator:
            alarms = [entry for entry in caplog.records if entry.levelno == logging.CRITICAL]
            assert [entry.getMessage() for entry in alarms] == [
                f"run 'run': files of round 2 are damaged ({role}: {problem(how, states[2][role], path)}); "
                "those of round 1 are used instead; check the disk"
            ]
            found = committed(coordinator)
            assert (found.id.round, found.blobs) == (2, {**states[2], role: states[1][role]})
            assert found.reason in alarms[0].getMessage()
            (abandoned,) = [past async for past in coordinator.operators.rounds("run") if past.status == "abandoned"]
            assert (abandoned.round, abandoned.attempt, abandoned.reason) == (3, 1, found.reason)
            work = await assigned(coordinator)
            assert (work.id.round, work.id.attempt) == (3, 2)
            assert work.blobs == {name: found.blobs[name] for name in ("model", "variate")}
            assert not path.exists(), "nothing needs it any more"
            await rounds_of(coordinator, tmp_path, 4)
            assert (await ended(coordinator)).status == "finished"

    play(scenario())


def problem(how: str, ref: BlobRef, path: Path) -> str:
    if how == "gone":
        return f"there is no blob '{ref.sha256}'"
    return f"the stored blob {ref.sha256[:12]} has another sha256: {path} is damaged"


def test_an_encoded_model_goes_with_the_model_that_it_was_made_from(tmp_path: Path) -> None:
    int8 = replace(LEAST, uplink_encoding="int8", downlink_encoding="int8")

    async def scenario() -> None:
        async with opened(tmp_path / "state") as coordinator:
            await started(coordinator, make_bundle(), int8)
            before = coordinator.storage.store.initial_state("run")
            ref = coordinator.storage.blobs.put_bytes(b"the model after round 1")
            encoded = coordinator.storage.blobs.put_bytes(b"the same in int8")
            first = AttemptId(run="run", round=1, attempt=1)
            coordinator.storage.store.open_round(first, NAMES)
            blobs = {"model": ref, ENCODED_MODEL: encoded}
            coordinator.storage.store.commit_round(first, NAMES, blobs, metrics={}, metrics_before={})
            damage(coordinator, ref)
        async with opened(tmp_path / "state") as coordinator:
            assert committed(coordinator).blobs == {role: before[role] for role in ("model", ENCODED_MODEL)}

    play(scenario())


def test_damage_during_a_round_produces_no_model_and_the_run_continues_without_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state") as coordinator:
            await started(coordinator, BUNDLE, LEAST)
            await rounds_of(coordinator, tmp_path, 1)
            await rounds_of(coordinator, tmp_path, 2)
            newest = committed(coordinator)
            work = await assigned(coordinator)
            damage(coordinator, newest.blobs["momentum"])
            for name in NAMES:
                await coordinator.updates.submit_files(*trained(work, name, tmp_path))
            with suppress(Unavailable):  # a watch ends when the run restarts
                await watched(coordinator, "round_abandoned", 3)
            while committed(coordinator).blobs == newest.blobs:
                await asyncio.sleep(0.02)
            await rounds_of(coordinator, tmp_path, 4)
            assert (await ended(coordinator)).status == "finished"
            (reason,) = [
                past.reason async for past in coordinator.operators.rounds("run") if past.status == "abandoned"
            ]
            assert f"the stored blob {newest.blobs['momentum'].sha256[:12]} has another sha256" in reason

    play(scenario())


def test_without_a_complete_previous_state_the_run_is_suspended(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def scenario() -> None:
        async with opened(state) as coordinator:
            await started(coordinator, BUNDLE, LEAST)
            await rounds_of(coordinator, tmp_path, 1)
            first = committed(coordinator).blobs["model"]
            await rounds_of(coordinator, tmp_path, 2)
            newest = committed(coordinator).blobs["model"]
            whole = coordinator.storage.blobs.local(newest).read_bytes()
            path = damage(coordinator, newest)
            damage(coordinator, first)
        async with opened(state) as coordinator:
            view = await coordinator.operators.run("run")
            assert view.waiting.startswith(f"suspended: the stored blob {newest.sha256[:12]}")
            assert committed(coordinator).blobs["model"] == newest
        path.write_bytes(whole)
        async with opened(state) as coordinator:
            assert "suspended" not in (await coordinator.operators.run("run")).waiting

    play(scenario())


def test_a_damaged_initial_model_has_no_replacement(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def scenario() -> None:
        async with opened(state) as coordinator:
            await started(coordinator, BUNDLE)
            damage(coordinator, coordinator.storage.store.initial_state("run")["model"])
        async with opened(state) as coordinator:
            assert (await coordinator.operators.run("run")).waiting.startswith("suspended: ")

    play(scenario())
    with open_storage(state) as directory:
        assert directory.store.latest_round("run") is None
