"""A device's record of its rounds."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory, ref_of_bytes
from moonfed.edge_client.state.gc import BLOBS_KEPT, RUNS_KEPT, collect_garbage
from moonfed.edge_client.state.round_store import RunState, StoredRound, Write, newest_samples
from moonfed.errors import InvalidInput

TASK = "a" * 64
MANIFEST = "c" * 64
STATE = "device_variate"


def writer(text: str) -> Write:
    def write(file: Path) -> None:
        file.write_text(text)

    return write


def save(
    state: RunState,
    round_number: int,
    attempt: int = 1,
    *,
    keep: int = 3,
    samples: int = 10,
    counted: tuple[int, int] = (0, 0),
) -> StoredRound:
    roles = ("model", "variate_change", STATE)
    return state.save(
        round_number,
        attempt,
        files={role: writer(f"{role} of {round_number}-{attempt}") for role in roles},
        kept=[STATE],
        assignment=TASK,
        samples=samples,
        steps=4,
        metrics={"loss": 0.5},
        keep=keep,
        counted=counted,
    )


def open_run(tmp_path: Path, run: str = "run-1", *, manifest: str = MANIFEST, seed: int = 7) -> RunState:
    return RunState(tmp_path / "runs", run, manifest=manifest, seed=seed)


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    return open_run(tmp_path)


def places(found: list[StoredRound]) -> list[tuple[int, int]]:
    return [stored.key for stored in found]


def test_an_update_survives_a_restart(state: RunState, tmp_path: Path) -> None:
    save(state, 1)
    found = open_run(tmp_path).find(1, 1, TASK)
    assert found is not None
    assert found.model_file.read_bytes() == b"model of 1-1"
    assert found.file("variate_change").read_bytes() == b"variate_change of 1-1"
    submitted = {role: ref_of_bytes(f"{role} of 1-1".encode()) for role in ("model", "variate_change")}
    assert found.update.blobs == submitted
    assert found.update.kept == {STATE: ref_of_bytes(b"device_variate of 1-1")}
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


def test_rounds_after_the_assigned_one_belong_to_another_run(state: RunState) -> None:
    for round_number in (3, 4, 5):
        save(state, round_number)
    state.delete_foreign_rounds(3, 1)
    assert sorted(path.name for path in state.directory.iterdir()) == ["3-1"]


@pytest.mark.parametrize("change", [{"manifest": "d" * 64}, {"seed": 8}], ids=["manifest", "seed"])
def test_files_of_another_run_with_the_same_name_are_never_used(change: dict[str, object], tmp_path: Path) -> None:
    save(open_run(tmp_path, **change), 1)  # type: ignore[arg-type]
    state = open_run(tmp_path)
    assert state.find(1, 1, TASK) is None
    assert state.previous(9, 1, 9) == []
    assert state.device_state(1, 1, [STATE]) == {}
    save(state, 2, keep=1)
    assert places(state.previous(9, 1, 9)) == [(2, 1)]
    state.delete_foreign_rounds(3, 1)
    assert [path.name for path in state.directory.iterdir()] == ["2-1"]


def test_device_state_comes_from_the_counted_round(state: RunState, caplog: pytest.LogCaptureFixture) -> None:
    for attempt in (1, 2):
        save(state, 1, attempt)
    save(state, 2)
    assert state.device_state(1, 2, [STATE]) == {STATE: state.directory / "1-2" / f"{STATE}.safetensors"}
    assert state.device_state(0, 0, [STATE]) == {}
    assert state.device_state(1, 2, []) == {}
    assert not caplog.messages


def test_lost_or_damaged_device_state_counts_as_none_with_a_warning(
    state: RunState, caplog: pytest.LogCaptureFixture
) -> None:
    save(state, 1).file(STATE).write_text("device_variate of 9-9")
    for place in ((1, 1), (2, 1)):
        caplog.clear()
        assert state.device_state(*place, [STATE]) == {}
        assert f"this device's state of round {place[0]} (attempt {place[1]}) is lost" in caplog.text
    assert state.find(1, 1, TASK) is None  # it is trained again, for the sake of its state
    assert places(state.previous(2, 1, 1)) == [(1, 1)]  # but its model is whole


def test_the_counted_round_outlives_newer_ones_until_another_is_counted(state: RunState) -> None:
    def kept() -> list[str]:
        return sorted(path.name for path in state.directory.iterdir())

    save(state, 1, keep=1)
    save(state, 2, keep=1, counted=(1, 1))
    save(state, 3, keep=1, counted=(1, 1))
    assert kept() == ["1-1", "3-1"]
    save(state, 4, keep=1, counted=(3, 1))
    assert kept() == ["3-1", "4-1"]


def test_the_newest_number_of_samples_is_found_across_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert newest_samples(runs) == 0
    for time, (run, samples) in enumerate((("b", 30), ("a", 20), ("c", 40)), start=1):
        stored = save(open_run(tmp_path, run), 1, samples=samples)
        os.utime(stored.directory / "update.json", (time, time))
    assert newest_samples(runs) == 40
    (stored.directory / "update.json").write_text("{")
    assert newest_samples(runs) == 20


def damage_model(stored: StoredRound) -> None:
    stored.model_file.write_bytes(b"model of 1-2")  # as long as before


def damage_facts(stored: StoredRound) -> None:
    (stored.directory / "update.json").write_text("{")


def lose_model(stored: StoredRound) -> None:
    stored.model_file.unlink()


def change_facts(stored: StoredRound) -> None:
    facts = json.loads((stored.directory / "update.json").read_text())
    del facts["seed"]
    (stored.directory / "update.json").write_text(json.dumps(facts))


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


def test_fields_of_a_later_release_are_ignored_rather_than_the_round(state: RunState) -> None:
    stored = save(state, 1)
    facts = json.loads((stored.directory / "update.json").read_text())
    facts["blobs"]["model"]["encoding"] = "later"
    (stored.directory / "update.json").write_text(json.dumps(facts | {"later": 1}))
    assert state.find(1, 1, TASK) == stored


def test_a_half_written_model_is_ignored(state: RunState, tmp_path: Path) -> None:
    def fail(file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError("the disk is full")

    files = {"model": writer("whole"), STATE: fail}
    with pytest.raises(OSError, match="full"):
        state.save(1, 1, files=files, kept=[STATE], assignment=TASK, samples=1, steps=1, metrics={}, keep=2)
    assert list(state.directory.iterdir()) == []
    (state.directory / ".1-1.123").mkdir()  # killed while it wrote
    collect_garbage(tmp_path / "runs", tmp_path / "blobs")
    assert list(state.directory.iterdir()) == []


def test_runs_used_long_ago_are_dropped(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for number in range(RUNS_KEPT + 2):
        save(open_run(tmp_path, f"run-{number}"), 1)
        os.utime(root / f"run-{number}", (number, number))
    collect_garbage(root, tmp_path / "blobs")
    assert sorted(path.name for path in root.iterdir()) == sorted(f"run-{n}" for n in range(2, RUNS_KEPT + 2))


def test_blobs_used_long_ago_are_dropped(tmp_path: Path) -> None:
    blobs = BlobDirectory(tmp_path / "blobs")
    refs = [blobs.put_bytes(f"plan {number}".encode()) for number in range(BLOBS_KEPT + 2)]
    for number, ref in enumerate(refs):
        os.utime(blobs.path(ref.sha256), (number, number))
    os.utime(blobs.path(refs[0].sha256))  # of use again
    collect_garbage(tmp_path / "runs", blobs.root)
    assert [blobs.has(ref) for ref in refs] == [True, False, False, *[True] * (BLOBS_KEPT - 1)]


@pytest.mark.parametrize("run", ["", ".", "..", "../escape", "a/b", "/etc", ".hidden", "a\0b", "x" * 129, "a\n"])
def test_a_run_id_is_a_plain_file_name(run: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="run is"):
        RunState(tmp_path, run, manifest=MANIFEST, seed=7)
