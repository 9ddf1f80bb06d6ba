"""Dropping a run keeps the files that other runs share; kept runs are named newest first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobDirectory, ref_of_bytes
from moonfed.edge_client.state.gc import drop_run, kept_runs
from moonfed.edge_client.state.round_store import RunState
from moonfed.errors import InvalidInput
from tests.edge_client.conftest import Bundle
from tests.edge_client.state.test_runs_that_ended import files


def write(file: Path) -> None:
    file.write_text("model")


def save(runs: Path, run: str, manifest: str) -> None:
    RunState(runs, run, manifest=manifest, seed=1).save(
        *(1, 1),
        files={"model": write},
        kept=[],
        assignment="a" * 64,
        samples=1,
        steps=1,
        metrics={},
        keep=1,
    )


def test_dropping_a_run_keeps_files_that_other_runs_share(tmp_path: Path, bundle: Bundle, scaffold: Bundle) -> None:
    runs, blobs = tmp_path / "runs", BlobDirectory(tmp_path / "blobs")
    for kept in (bundle, scaffold):
        blobs.put_bytes(kept.manifest.to_bytes())
        blobs.put_bytes(kept.plan)
    save(runs, "a", bundle.digest)
    save(runs, "b", bundle.digest)
    save(runs, "c", scaffold.digest)
    theirs, shared = ({kept.digest, ref_of_bytes(kept.plan).sha256} for kept in (scaffold, bundle))
    drop_run(runs, "c", blobs.root)
    assert set(files(blobs.root)) == shared
    drop_run(runs, "a", blobs.root)
    assert set(files(blobs.root)) == shared
    assert sorted(kept_runs(runs)) == ["b"]
    drop_run(runs, "b", blobs.root)
    assert files(blobs.root) == []
    assert not shared & theirs
    with pytest.raises(InvalidInput, match="run is"):
        drop_run(runs, "..", blobs.root)
    assert runs.is_dir()


def test_a_bundle_of_a_later_release_does_not_keep_other_runs_from_ending(tmp_path: Path, bundle: Bundle) -> None:
    runs, blobs = tmp_path / "runs", BlobDirectory(tmp_path / "blobs")
    later = blobs.put_bytes(bundle.manifest.to_bytes().replace(b"moonfed-bundle/4", b"moonfed-bundle/9"))
    blobs.put_bytes(bundle.manifest.to_bytes())
    save(runs, "kept", later.sha256)
    save(runs, "ended", bundle.digest)
    drop_run(runs, "ended", blobs.root)
    assert files(blobs.root) == [later.sha256]
    assert kept_runs(runs) == ["kept"]


def test_runs_are_named_newest_first_up_to_a_limit(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert kept_runs(runs) == []
    for number in range(70):
        (runs / f"run-{number}").mkdir(parents=True)
        os.utime(runs / f"run-{number}", (number, number))
    (runs / ".hidden").mkdir()
    named = kept_runs(runs)
    assert named[:2] == ["run-69", "run-68"]
    assert len(named) <= 64  # what a coordinator takes


def test_a_run_deleted_concurrently_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    for name in "abc":
        (runs / name).mkdir(parents=True)
    stat = Path.stat

    def gone(path: Path, **options: bool) -> os.stat_result:
        if path == runs / "b":
            raise FileNotFoundError(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", gone)
    assert {"a", "c"} <= set(kept_runs(runs))
