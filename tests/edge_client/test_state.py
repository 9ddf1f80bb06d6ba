"""What a device keeps of its rounds."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from edge_client.state import BLOBS_KEPT, RUNS_KEPT, RunState, StoredRound, tidy
from moonfed.blobs import BlobDirectory, ref_of_bytes
from moonfed.errors import InvalidInput

TASK = "a" * 64


def save(state: RunState, round_number: int, attempt: int = 1, *, keep: int = 3) -> StoredRound:
    def write(file: Path) -> None:
        file.write_text(f"model of {round_number}-{attempt}")

    return state.save(
        round_number,
        attempt,
        write=write,
        assignment=TASK,
        samples=10,
        steps=4,
        metrics={"loss": 0.5},
        keep=keep,
    )


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    return RunState(tmp_path / "runs", "run-1")


def places(found: list[StoredRound]) -> list[tuple[int, int]]:
    return [stored.place for stored in found]


def test_an_update_survives_a_restart(state: RunState, tmp_path: Path) -> None:
    save(state, 1)
    found = RunState(tmp_path / "runs", "run-1").find(1, 1, TASK)
    assert found is not None
    assert found.model_file.read_bytes() == b"model of 1-1"
    assert found.update.model == ref_of_bytes(b"model of 1-1")
    assert (found.update.samples, found.update.steps, found.update.metrics) == (10, 4, {"loss": 0.5})


def test_an_update_is_found_only_for_its_round_attempt_and_assignment(state: RunState) -> None:
    save(state, 2, 1)
    assert state.find(2, 2, TASK) is None
    assert state.find(1, 1, TASK) is None
    assert state.find(2, 1, "b" * 64) is None


def test_previous_models_are_the_newest_before_the_round(state: RunState) -> None:
    for round_number, attempt in ((1, 1), (2, 1), (2, 2), (10, 1)):
        save(state, round_number, attempt, keep=10)
    assert places(state.previous(11, 1, 2)) == [(10, 1), (2, 2)]
    assert places(state.previous(10, 1, 9)) == [(2, 2), (2, 1), (1, 1)]
    assert places(state.previous(2, 2, 1)) == [(2, 1)]
    assert places(state.previous(1, 1, 5)) == []
    assert places(state.previous(11, 1, 0)) == []


def test_only_the_newest_are_kept(state: RunState) -> None:
    for round_number in (8, 9, 10, 11):
        save(state, round_number, keep=2)
    assert sorted(path.name for path in state.directory.iterdir()) == ["10-1", "11-1"]


def test_what_lies_ahead_of_the_assigned_round_is_of_another_run(state: RunState) -> None:
    for round_number in (3, 4, 5):
        save(state, round_number)
    state.forget_later(3, 1)
    assert sorted(path.name for path in state.directory.iterdir()) == ["3-1"]


def damage_model(stored: StoredRound) -> None:
    stored.model_file.write_bytes(b"model of 1-2")  # as long as before


def damage_facts(stored: StoredRound) -> None:
    (stored.directory / "update.json").write_text("{")


def lose_model(stored: StoredRound) -> None:
    stored.model_file.unlink()


def change_facts(stored: StoredRound) -> None:
    facts = json.loads((stored.directory / "update.json").read_text())
    (stored.directory / "update.json").write_text(json.dumps(facts | {"unknown": 1}))


@pytest.mark.parametrize("damage", [damage_model, damage_facts, lose_model, change_facts])
def test_damaged_directories_are_skipped_with_a_warning(
    state: RunState, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    save(state, 1)
    stored = save(state, 2)
    damage(stored)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        assert state.find(2, 1, TASK) is None
        assert places(state.previous(3, 1, 5)) == [(1, 1)]
    assert "skipping the damaged" in caplog.text


def test_a_half_written_model_is_no_model(state: RunState, tmp_path: Path) -> None:
    def fail(file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        state.save(1, 1, write=fail, assignment=TASK, samples=1, steps=1, metrics={}, keep=2)
    assert list(state.directory.iterdir()) == []
    (state.directory / ".1-1.123").mkdir()  # killed while it wrote
    tidy(tmp_path / "runs", tmp_path / "blobs")
    assert list(state.directory.iterdir()) == []


def test_runs_used_long_ago_are_dropped(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for number in range(RUNS_KEPT + 2):
        save(RunState(root, f"run-{number}"), 1)
        os.utime(root / f"run-{number}", (number, number))
    tidy(root, tmp_path / "blobs")
    assert sorted(path.name for path in root.iterdir()) == sorted(f"run-{n}" for n in range(2, RUNS_KEPT + 2))


def test_blobs_used_long_ago_are_dropped(tmp_path: Path) -> None:
    blobs = BlobDirectory(tmp_path / "blobs")
    refs = [blobs.put_bytes(f"plan {number}".encode()) for number in range(BLOBS_KEPT + 2)]
    for number, ref in enumerate(refs):
        os.utime(blobs.path(ref.sha256), (number, number))
    os.utime(blobs.path(refs[0].sha256))  # of use again
    tidy(tmp_path / "runs", blobs.root)
    assert [blobs.has(ref) for ref in refs] == [True, False, False, *[True] * (BLOBS_KEPT - 1)]


@pytest.mark.parametrize("run", ["", ".", "..", "../escape", "a/b", "/etc", ".hidden", "a\0b", "x" * 129, "a\n"])
def test_a_run_id_is_a_plain_file_name(run: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="run is"):
        RunState(tmp_path, run)
