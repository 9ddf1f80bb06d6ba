"""A coordinator in this process, without gRPC, whose devices submit files that are on this machine."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes, ref_of_file
from moonfed.errors import AlreadyExists, Corrupt, NotFound, SchemaMismatch, WrongState
from tests.support.coordinator import PARAMETERS, SCAFFOLD, make_bundle, model_bytes
from tests.support.in_process_coordinator import NAMES, device_info, opened, play, started, trained, watched
from tests.support.refusals import refused


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
            with refused(AlreadyExists, "update", "party-0"):
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
            with refused(Corrupt, "variate_change"):
                await coordinator.updates.submit_files(replace(header, blobs=wrong), files)
            with refused(NotFound, "file"):
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
            assert view.open_round.rejected == (NAMES[0],)
            assert not view.open_round.reported
            await coordinator.updates.submit_files(header, files)
            await coordinator.operators.stop_run("run")
            with pytest.raises(WrongState, match="has ended"):
                await coordinator.updates.submit_files(header, files)
            assert not list((tmp_path / "state" / "spool").glob("*/*"))

    play(scenario())
