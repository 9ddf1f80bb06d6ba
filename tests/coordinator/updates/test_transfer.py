"""Transfers: one writer for each file, and resumed, concurrent and cancelled uploads."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobRef, Incoming, ref_of_bytes
from moonfed.coordinator.updates.transfer import Transfers
from moonfed.errors import InvalidInput, WrongState


def test_a_newer_upload_of_a_file_replaces_the_older_one(tmp_path: Path) -> None:
    content = b"0123456789"
    ref = ref_of_bytes(content)

    async def scenario() -> None:
        uploads = Transfers()
        old, offsets = await uploads.begin({ref: tmp_path / "file"})
        assert offsets == {ref.sha256: 0}
        await old.append(ref.sha256, 0, content[:4])
        new, offsets = await uploads.begin({ref: tmp_path / "file"})
        assert offsets == {ref.sha256: 4}
        with pytest.raises(WrongState, match="taken over"):
            await old.append(ref.sha256, 4, content[4:])
        with pytest.raises(WrongState, match="taken over"):
            async with old.held():
                pass
        await new.append(ref.sha256, 4, content[4:])
        await old.close()
        async with new.held():
            assert new.finish()[ref.sha256].read_bytes() == content
        await new.close()

    asyncio.run(scenario())


def test_a_part_of_an_unknown_blob_is_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        upload, _ = await Transfers().begin({ref_of_bytes(b"abc"): tmp_path / "file"})
        with pytest.raises(InvalidInput, match="still incomplete"):
            await upload.append("0" * 64, 0, b"abc")
        await upload.close()

    asyncio.run(scenario())


def test_the_last_of_several_concurrent_uploads_of_a_file_wins(tmp_path: Path) -> None:
    content = b"0123456789"
    ref = ref_of_bytes(content)

    async def scenario() -> None:
        uploads, path = Transfers(), tmp_path / "file"
        old, _ = await uploads.begin({ref: path})
        await old.append(ref.sha256, 0, content[:4])
        async with old.held():
            begins = [asyncio.create_task(uploads.begin({ref: path})) for _ in range(3)]
            await asyncio.sleep(0)
        begun = await asyncio.gather(*begins, return_exceptions=True)
        live = [outcome for outcome in begun if not isinstance(outcome, BaseException)]
        for upload, offsets in live[:-1]:
            assert offsets == {ref.sha256: 4}
            with pytest.raises(WrongState, match="taken over"):
                await upload.append(ref.sha256, 4, content[4:])
        assert all(isinstance(outcome, WrongState | tuple) for outcome in begun)
        await live[-1][0].append(ref.sha256, 4, content[4:])
        async with live[-1][0].held():
            assert live[-1][0].finish()[ref.sha256].read_bytes() == content
        await live[-1][0].close()

    asyncio.run(scenario())


def test_a_checked_file_is_not_written_to_until_it_is_in_place(tmp_path: Path) -> None:
    content = b"0123456789"
    ref = ref_of_bytes(content)
    longer = replace(ref, size=len(content) + 5)  # the same name with another size must not reach those bytes either

    async def scenario() -> None:
        uploads, path, place = Transfers(), tmp_path / "file", tmp_path / "place"
        first, _ = await uploads.begin({ref: path})
        await first.append(ref.sha256, 0, content)
        async with first.held():
            checked = first.finish()[ref.sha256]
            second = asyncio.create_task(uploads.begin({longer: path}))
            await asyncio.sleep(0.05)
            checked.replace(place)
        upload, offsets = await second
        assert offsets == {ref.sha256: 0}
        await upload.append(ref.sha256, 0, b"other")
        await upload.close()
        assert place.read_bytes() == content

    asyncio.run(scenario())


def test_a_blob_announced_with_two_sizes_is_rejected(tmp_path: Path) -> None:
    ref = ref_of_bytes(b"abc")
    with pytest.raises(InvalidInput, match="two sizes"):
        asyncio.run(Transfers().begin({ref: tmp_path / "file", replace(ref, size=9): tmp_path / "file"}))


def test_an_upload_cancelled_while_it_begins_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref, opening, go_on = ref_of_bytes(b"abc"), threading.Event(), threading.Event()

    class Slow(Incoming):
        def __init__(self, path: Path, ref: BlobRef) -> None:
            opening.set()
            go_on.wait(20)
            super().__init__(path, ref)

    monkeypatch.setattr("moonfed.coordinator.updates.transfer.Incoming", Slow)

    (tmp_path / "file").write_bytes(b"a")  # else it is opened later

    async def scenario() -> None:
        uploads = Transfers()
        begun = asyncio.create_task(uploads.begin({ref: tmp_path / "file"}))
        await asyncio.to_thread(opening.wait, 20)
        begun.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert not uploads._by_file

    asyncio.run(scenario())


def test_an_upload_cancelled_while_it_ends_another_leaves_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed transfer that is never forgotten would keep the next one waiting for its end, without a pause."""
    ref, closing, go_on, close = ref_of_bytes(b"abc"), threading.Event(), threading.Event(), Incoming.close

    def slow(self: Incoming) -> None:
        closing.set()
        go_on.wait(20)
        close(self)

    async def scenario() -> None:
        uploads, files = Transfers(), {ref: tmp_path / "file"}
        old, _ = await uploads.begin(files)
        await old.append(ref.sha256, 0, b"a")
        monkeypatch.setattr(Incoming, "close", slow)
        begun = asyncio.create_task(uploads.begin(files))
        await asyncio.to_thread(closing.wait, 20)
        begun.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await begun
        assert not uploads._by_file
        new, offsets = await uploads.begin(files)
        assert offsets == {ref.sha256: 1}
        await new.close()

    asyncio.run(scenario())
