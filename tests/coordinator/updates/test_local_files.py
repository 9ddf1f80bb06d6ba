"""A coordinator in this process, without gRPC, whose devices submit files that are on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from moonfed.assignment import Assignment
from moonfed.blobs import ref_of_bytes, ref_of_file
from moonfed.bundle import Bundle
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.devices.sessions import DeviceInfo
from moonfed.coordinator.records import AttemptId, RunEvent, RunView
from moonfed.coordinator.rounds.settings import Amount, RunSettings
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.errors import AlreadyExists, Corrupt, NotFound, SchemaMismatch, WrongState
from moonfed.server_rules.fedadam import FedAdam
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE
from tests.support.coordinator import PARAMETERS, SCAFFOLD, SIZE, WAIT, make_bundle, model_bytes, model_values

NAMES = ("party-0", "party-1", "party-2")
ALL = RunSettings(rounds=4, minimum_devices=3, quorum=Amount(fraction=1.0), heartbeat_timeout_seconds=1e6, seed=11)


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, WAIT))


@asynccontextmanager
async def opened(state: Path) -> AsyncIterator[Coordinator]:
    with open_storage(state) as directory:
        coordinator = Coordinator(directory)
        await coordinator.open()
        try:
            yield coordinator
        finally:
            await coordinator.close()


async def started(coordinator: Coordinator, bundle: Bundle, settings: RunSettings = ALL) -> None:
    for content in bundle.contents.values():
        coordinator.storage.blobs.put_bytes(content)
    await coordinator.operators.start_run("run", bundle.ref.sha256, "", settings)


def device_info(name: str) -> DeviceInfo:
    return DeviceInfo(
        device=name, contract_version=CONTRACT_VERSION, plan_interfaces=(PLAN_INTERFACE,), platform={}, samples=10
    )


def trained(work: Assignment, name: str, directory: Path) -> tuple[UpdateHeader, dict[str, Path]]:
    """An update that depends on the round and the device alone, as files of the device's own."""
    chance = np.random.default_rng([work.id.round, NAMES.index(name)])
    contents = {
        "model": model_bytes(chance.uniform(1, 2, SIZE).astype(np.float32)),
        "variate_change": model_bytes(chance.normal(size=15).astype(np.float32), PARAMETERS),
    }
    files = {}
    for role, content in contents.items():
        files[role] = directory / f"{name}-{work.id.round}-{role}"
        files[role].write_bytes(content)
    header = UpdateHeader(
        id=work.id,
        device=name,
        blobs={role: ref_of_file(path) for role, path in files.items()},
        samples=10 * (NAMES.index(name) + 1),
        steps=3,
        metrics={"loss": 1.0, "inexactness": float(NAMES.index(name))},
    )
    return header, files


async def party(coordinator: Coordinator, name: str, directory: Path, rounds: int) -> None:
    async with coordinator.devices.connect(device_info(name)) as session:
        async for work in session.assignments():
            await coordinator.updates.submit_files(*trained(work, name, directory))
            if work.id.round == rounds:
                return


async def watched(coordinator: Coordinator, kind: str, round_: int = 0) -> RunEvent | RunView:
    """Return the event when it arrives, or a snapshot that already includes it."""
    async for event in coordinator.operators.watch("run"):
        if isinstance(event, RunView):
            if round_ and event.committed >= round_:
                return event
        elif event.kind == kind and event.round in (0, round_):
            return event
    raise AssertionError("the run has ended before")


async def course(state: Path, directory: Path, rule: ServerRule, stop_requests: Sequence[int]) -> dict[str, bytes]:
    """Four rounds, with the coordinator ended and begun again after some; the final global state."""
    directory.mkdir()
    for number, last in enumerate((*stop_requests, 4)):
        async with opened(state) as coordinator:
            if number == 0:
                await started(coordinator, make_bundle(**SCAFFOLD, server_rule=rule))
            parties = [asyncio.create_task(party(coordinator, name, directory, last)) for name in NAMES]
            await watched(coordinator, "round_committed", last)
            await asyncio.gather(*parties)
    async with opened(state) as coordinator:
        newest = coordinator.storage.store.latest_round("run", "committed")
        assert newest
        assert (newest.id.round, newest.counted) == (4, NAMES)
        return {role: coordinator.storage.blobs.read(ref) for role, ref in newest.blobs.items()}


@pytest.mark.parametrize("rule", [FedAvgM(server_momentum=0.7), FedAdam(), MeanRule(weighting="uniform")])
def test_the_global_state_is_bit_identical_across_restarts(tmp_path: Path, rule: ServerRule) -> None:
    found: list[dict[str, bytes]] = []

    async def scenario() -> None:
        for number, stop_requests in enumerate([(), (1, 3), (2,)]):
            found.append(await course(tmp_path / f"state-{number}", tmp_path / f"own-{number}", rule, stop_requests))

    play(scenario())
    assert found[0] == found[1] == found[2]
    own = {"fedavgm": {"momentum"}, "fedadam": {"first_moment", "second_moment"}, "mean": set[str]()}
    assert set(found[0]) == {"model", "variate"} | own[rule.name]
    changes = [
        np.random.default_rng([round_, device]) for round_ in range(1, 5) for device in range(3)
    ]  # N is 3, so c is the sum over the rounds of the mean change
    drawn = [(chance.uniform(1, 2, SIZE), chance.normal(size=15))[1] for chance in changes]
    np.testing.assert_allclose(model_values(found[0]["variate"], PARAMETERS), sum(drawn) / 3, rtol=1e-4, atol=1e-5)


def test_a_coordinator_that_was_restarted_knows_when_each_device_counted_last(tmp_path: Path) -> None:
    """Otherwise SCAFFOLD's devices would start from an older c_i, or from none. The second round counts two devices."""
    told: dict[tuple[int, str], AttemptId | None] = {}

    async def deliver(coordinator: Coordinator, name: str) -> None:
        async with coordinator.devices.connect(device_info(name)) as session:
            work = await anext(aiter(session.assignments()))
            told[work.id.round, name] = work.counted
            if (work.id.round, name) == (2, "party-2"):
                await coordinator.devices.decline(work.id, name, "busy")
            else:
                await coordinator.updates.submit_files(*trained(work, name, tmp_path))
            await watched(coordinator, "round_committed", work.id.round)

    async def scenario() -> None:
        for round_ in (1, 2, 3):
            async with opened(tmp_path / "state") as coordinator:
                if round_ == 1:
                    settings = replace(ALL, rounds=3, quorum=Amount(count=2))
                    await started(coordinator, make_bundle(**SCAFFOLD), settings)
                await asyncio.gather(*(deliver(coordinator, name) for name in NAMES))

    play(scenario())
    first, second = (AttemptId(run="run", round=round_, attempt=1) for round_ in (1, 2))
    assert [told[1, name] for name in NAMES] == [None, None, None]
    assert [told[2, name] for name in NAMES] == [first, first, first]
    assert [told[3, name] for name in NAMES] == [second, second, first]


def test_files_are_linked_once_and_remain_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, place: Path) -> None:
        raise OSError("links are not supported")

    async def scenario() -> None:
        async with opened(tmp_path / "state") as coordinator, AsyncExitStack() as stack:
            await started(coordinator, make_bundle(**SCAFFOLD))
            sessions = [
                await stack.enter_async_context(coordinator.devices.connect(device_info(name))) for name in NAMES
            ]
            work = [await anext(session.assignments()) for session in sessions]
            header, files = trained(work[0], NAMES[0], tmp_path)
            before = {role: path.read_bytes() for role, path in files.items()}
            for _ in range(2):
                await coordinator.updates.submit_files(header, files)
            assert {role: path.read_bytes() for role, path in files.items()} == before
            with monkeypatch.context() as patched:
                patched.setattr(os, "link", no_links)
                await coordinator.updates.submit_files(*trained(work[1], NAMES[1], tmp_path))
            other, its_files = trained(replace(work[0], id=replace(work[0].id, round=9)), NAMES[0], tmp_path)
            with pytest.raises(AlreadyExists, match="a different update of 'party-0' already counts"):
                await coordinator.updates.submit_files(replace(other, id=header.id), its_files)
            with pytest.raises(WrongState, match="round 9, attempt 1 is not open"):
                await coordinator.updates.submit_files(other, its_files)
            for path in files.values():
                path.unlink()  # what was taken stays
            await coordinator.updates.submit_files(*trained(work[2], NAMES[2], tmp_path))
            await watched(coordinator, "round_committed", 1)
            (done,) = [found async for found in coordinator.operators.rounds("run")]
            assert done.counted == NAMES
            # weighted by 10, 20 and 30 samples
            assert done.metrics == {"train_loss": 1.0, "inexactness": pytest.approx((0 * 10 + 1 * 20 + 2 * 30) / 60)}
            assert not list((tmp_path / "state" / "spool" / "run").glob("1-1/staging-*"))

    play(scenario())


def test_local_files_are_checked_like_uploaded_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state") as coordinator, AsyncExitStack() as stack:
            await started(coordinator, make_bundle(**SCAFFOLD))
            sessions = [
                await stack.enter_async_context(coordinator.devices.connect(device_info(name))) for name in NAMES
            ]
            work = await anext(sessions[0].assignments())
            header, files = trained(work, NAMES[0], tmp_path)
            wrong = {**header.blobs, "variate_change": ref_of_bytes(b"something else")}
            with pytest.raises(Corrupt, match="the update's variate_change, has another sha256"):
                await coordinator.updates.submit_files(replace(header, blobs=wrong), files)
            with pytest.raises(NotFound, match=r"there is no file .*nothing"):
                await coordinator.updates.submit_files(header, {**files, "model": tmp_path / "nothing"})
            bad = tmp_path / "bad"
            bad.write_bytes(model_bytes(float("nan"), PARAMETERS))
            with pytest.raises(SchemaMismatch, match=r"variate_change: tensor 'head\.bias' holds NaN"):
                await coordinator.updates.submit_files(
                    replace(header, blobs={**header.blobs, "variate_change": ref_of_file(bad)}),
                    {**files, "variate_change": bad},
                )
            view = await coordinator.operators.run("run")
            assert view.open_round
            assert view.open_round.rejected == {NAMES[0]}
            assert not view.open_round.reported
            await coordinator.updates.submit_files(header, files)
            await coordinator.operators.stop_run("run")
            with pytest.raises(WrongState, match="has ended"):
                await coordinator.updates.submit_files(header, files)
            assert not list((tmp_path / "state" / "spool").glob("*/*"))

    play(scenario())
