"""Garbage collection on the device's disk: finished runs, and least recently used files.

This module is used by the light parent process, so it imports neither torch nor numpy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from moonfed.blobs.store import BlobDirectory
from moonfed.bundle.manifest import Manifest, parts_of, plan_files
from moonfed.edge_client.state.round_store import read_rounds, run_directory
from moonfed.errors import MoonfedError
from moonfed.validate import NAME

RUNS_KEPT = 8  # directories of runs; least recently used go first
RUNS_NAMED = 4 * RUNS_KEPT  # to the coordinator, at most, between two collections
BLOBS_KEPT = 5 * RUNS_KEPT  # signature, manifest, plan and two parts of each; least recently used go first


def kept_runs(runs: Path) -> list[str]:
    """Return the runs of which this device keeps state, most recently used first, at most `RUNS_NAMED`."""
    found = [path for path in runs.glob("*") if NAME.fullmatch(path.name)]
    return [path.name for path in _newest_first(found)[:RUNS_NAMED]]


def drop_run(runs: Path, run: str, blobs: Path) -> None:
    """Remove a run's files in STATE/runs, and the manifests, plans and parts that no other run uses."""
    shutil.rmtree(run_directory(runs, run), ignore_errors=True)
    used: set[str] = set()
    for directory in runs.glob("*"):
        for manifest in {stored.update.manifest for stored in read_rounds(directory)}:
            used |= {manifest, *_fetched_once(blobs / manifest[:2] / manifest)}
    keep_only(blobs, used)


def _fetched_once(manifest_file: Path) -> list[str]:
    """Return the plans, of which this device has fetched one, and the parts that a stored manifest names."""
    with suppress(OSError, MoonfedError):  # deleted, damaged, or of another version
        manifest = Manifest.from_bytes(manifest_file.read_bytes())
        plans = (manifest.files[name] for name in plan_files(manifest).values())
        return [ref.sha256 for ref in (*plans, *parts_of(manifest).values())]
    return []


def collect_garbage(runs: Path, blobs: Path) -> None:
    """Remove partial files in STATE/runs, and the least recently used runs and blobs.

    Call this only while nothing trains, because the trainer's partial files would be removed, too.
    """
    for leftover in runs.glob("*/.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for run in _used_longest_ago(runs.glob("*"), RUNS_KEPT):
        shutil.rmtree(run, ignore_errors=True)
    _drop_blobs(blobs)


def store_blob(blobs: BlobDirectory, content: bytes) -> Path:
    """Store a verified blob, or note that it is used; keep no more blobs than `collect_garbage` does."""
    file = blobs.path(blobs.put_bytes(content).sha256)
    os.utime(file)
    _drop_blobs(blobs.root)
    return file


def keep_only(blobs: Path, names: Collection[str]) -> None:
    """Remove all blobs but these, partial ones included."""
    for blob in blobs.glob("*/*"):
        if blob.name not in names:
            blob.unlink(missing_ok=True)


def _drop_blobs(blobs: Path) -> None:
    for blob in _used_longest_ago(blobs.glob("*/*"), BLOBS_KEPT):
        blob.unlink(missing_ok=True)


def _used_longest_ago(paths: Iterable[Path], kept: int) -> list[Path]:
    return _newest_first(paths)[kept:]


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=_changed, reverse=True)


def _changed(path: Path) -> int:
    """Return the modification time in nanoseconds; 0 if another thread has just removed the file."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
