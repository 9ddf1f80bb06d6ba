"""A device's own latest models: found while a run goes on and after it, and never another run's."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.edge_client.state.gc import drop_run
from moonfed.edge_client.state.local_models import (
    LOCAL_KEPT,
    find_local_model,
    keep_local_model,
    remove_partial_local_models,
)
from moonfed.edge_client.state.round_store import RunState, StoredRound

MANIFEST = "a" * 64


def store(state: Path, content: bytes, run: str = "r", round_: int = 1, *, keep: int = 3) -> StoredRound:
    return RunState(state / "runs", run, manifest=MANIFEST, seed=1).save(
        round_,
        1,
        files={"model": lambda path: _write(path, content)},
        kept=[],
        assignment="",
        samples=1,
        steps=1,
        metrics={},
        keep=keep,
    )


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def found(state: Path, run: str = "r", *, manifest: str = MANIFEST, seed: int = 1) -> bytes | None:
    file = find_local_model(state, run, manifest=manifest, seed=seed)
    return file.read_bytes() if file else None


def end(state: Path, run: str = "r") -> None:
    keep_local_model(state, run)
    drop_run(state / "runs", run, state / "blobs")


def test_the_newest_model_is_found_during_the_run_and_after_it(tmp_path: Path) -> None:
    assert found(tmp_path) is None
    store(tmp_path, b"one")
    store(tmp_path, b"two", round_=2)
    assert found(tmp_path) == b"two"
    end(tmp_path)
    end(tmp_path)  # the coordinator repeats that the run has ended
    assert not (tmp_path / "runs" / "r").exists()
    assert found(tmp_path) == b"two"
    store(tmp_path, b"three")  # a run of that name with the same bundle and seed
    assert found(tmp_path) == b"three"


@pytest.mark.parametrize("other", [{"seed": 2}, {"manifest": "b" * 64}])
def test_another_runs_model_is_never_used(tmp_path: Path, other: dict[str, str | int]) -> None:
    store(tmp_path, b"one")
    assert found(tmp_path, **other) is None  # type: ignore[arg-type]
    end(tmp_path)
    assert found(tmp_path, **other) is None  # type: ignore[arg-type]


def test_a_damaged_model_is_not_used(tmp_path: Path) -> None:
    store(tmp_path, b"one")
    newest = store(tmp_path, b"two", round_=2)
    newest.model_file.write_bytes(b"2wo")
    assert found(tmp_path) == b"one"
    end(tmp_path)
    (tmp_path / "local" / "r" / "model.safetensors").write_bytes(b"1ne")
    assert found(tmp_path) is None
    (tmp_path / "local" / "r" / "local.json").write_text("[]")
    assert found(tmp_path) is None


def test_only_the_models_of_the_last_runs_are_kept(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(LOCAL_KEPT + 2)]
    for name in names:
        store(tmp_path, name.encode(), name)
        end(tmp_path, name)
    assert [found(tmp_path, name) for name in names] == [None, None, *(name.encode() for name in names[2:])]


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "local" / ".r.123").mkdir(parents=True)
    remove_partial_local_models(tmp_path)
    assert not list((tmp_path / "local").iterdir())
