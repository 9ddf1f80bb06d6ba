"""The lock of a state directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moonfed.directory_lock import directory_lock
from moonfed.errors import InvalidInput, WrongState


def taken(process: str) -> WrongState:
    return WrongState(f"process {process} has it")


def test_a_second_process_is_kept_out_and_told_of_the_first(tmp_path: Path) -> None:
    with (
        directory_lock(tmp_path, taken),
        pytest.raises(WrongState, match=f"process {os.getpid()} has it"),
        directory_lock(tmp_path, taken),
    ):
        pass
    with directory_lock(tmp_path, taken):
        pass
    assert (tmp_path / "lock").exists()


def test_a_command_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(InvalidInput), directory_lock(state, taken):
        raise InvalidInput("wrong")
    assert not state.exists()
    with pytest.raises(FileExistsError), directory_lock(state, taken):  # noqa: PT012 - work, then a failure
        (state / "work").touch(exist_ok=False)
        (state / "work").touch(exist_ok=False)
    assert [path.name for path in state.iterdir()] == ["work"]


def test_a_lock_of_an_earlier_process_stays(tmp_path: Path) -> None:
    with directory_lock(tmp_path / "state", taken):
        pass
    with pytest.raises(InvalidInput), directory_lock(tmp_path / "state", taken):
        raise InvalidInput("wrong")
    assert (tmp_path / "state" / "lock").exists()


def test_a_lock_that_was_removed_while_it_was_opened_excludes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the process with the removed file and one with a new file would run at the same time."""
    path, opened = tmp_path / "lock", os.open

    def open_then_lose(file: Path, flags: int, mode: int) -> int:
        descriptor = opened(file, flags, mode)
        monkeypatch.setattr(os, "open", opened)
        path.unlink()  # by the process that held it and failed
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with (
        directory_lock(tmp_path, taken),
        pytest.raises(WrongState),
        directory_lock(tmp_path, taken),
    ):
        pass
