"""Finished models that this device has fetched: STATE/finished/RUN/ with signature, manifest, plan and last weights.

A directory appears whole or not at all. This module is used by the light parent process too, so it imports neither
torch nor numpy.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from moonfed.blobs import BlobRef, ref_of_bytes, ref_of_file
from moonfed.edge_client.state.round_store import run_directory
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.files import new_directory, read_regular
from moonfed.manifest import MANIFEST_FILE, PLAN_FILE, Manifest
from moonfed.signing.bundle_signature import MAX_BYTES, SIGNATURE_FILE, Check, require_name

FINISHED_KEPT = 2  # the newest
MODEL_FILE, FACTS_FILE = "model.safetensors", "finished.json"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """One run's last global model, and the files needed to use it."""

    directory: Path
    run: str
    rounds: int  # that made it
    manifest: BlobRef
    model: BlobRef

    @property
    def plan_file(self) -> Path:
        """The run's plan."""
        return self.directory / PLAN_FILE

    @property
    def model_file(self) -> Path:
        """The weights."""
        return self.directory / MODEL_FILE

    def read_manifest(self, check: Check) -> Manifest:
        """Return the run's manifest, after its signature and all files were checked.

        Raises UntrustedBundle for a signature that `check` rejects, Corrupt for a damaged file.
        """
        content = (self.directory / MANIFEST_FILE).read_bytes()
        self._require(ref_of_bytes(content) == self.manifest, MANIFEST_FILE)
        statement = check(self._read_signature(), self.manifest.sha256)
        manifest = Manifest.from_bytes(content)
        require_name(statement, manifest.name)
        self._require(ref_of_file(self.plan_file) == manifest.files[PLAN_FILE], PLAN_FILE)
        self._require(ref_of_file(self.model_file) == self.model, MODEL_FILE)
        return manifest

    def _read_signature(self) -> bytes:
        file = self.directory / SIGNATURE_FILE
        return read_regular(file, MAX_BYTES) if file.exists() else b""

    def _require(self, good: bool, name: str) -> None:
        if not good:
            raise Corrupt(f"{self.directory / name} differs from what was fetched; the disk may be damaged")


def store_finished(
    root: Path, run: str, rounds: int, *, manifest: BlobRef, model: BlobRef, files: dict[str, Path]
) -> Finished:
    """Store a run's verified files, which must be on the same file system; delete all but the newest runs'.

    `files`: by `SIGNATURE_FILE`, `MANIFEST_FILE`, `PLAN_FILE` and `MODEL_FILE`. `root` is STATE/finished.
    """
    directory = run_directory(root, run)
    facts = {"rounds": rounds, "manifest": _document(manifest), "model": _document(model)}
    with new_directory(directory) as temporary:
        for name, file in files.items():
            _link(file, temporary / name)
        (temporary / FACTS_FILE).write_text(json.dumps(facts))
    for old in finished_models(root)[FINISHED_KEPT:]:
        shutil.rmtree(old.directory, ignore_errors=True)
    return Finished(directory=directory, run=run, rounds=rounds, manifest=manifest, model=model)


def finished_models(root: Path) -> list[Finished]:
    """Return the models kept in STATE/finished, newest first; skip damaged ones."""
    return [finished for file in _newest_first(root) if (finished := _read(file))]


def find_finished(root: Path, run: str = "") -> Finished:
    """Return the newest finished model, or a run's; warn of a newer one that is damaged.

    Raises NotFound, listing the existing ones, or Corrupt if all candidates are damaged.
    """
    damaged: list[Path] = []
    for file in _newest_first(root):
        if run not in ("", file.parent.name):
            continue
        if found := _read(file):
            for other in damaged:
                log.warning("%s is damaged; using the model of run %s", other, found.run)
            return found
        damaged.append(file)
    if damaged:
        raise Corrupt(f"{damaged[0]} differs from what was fetched; the disk may be damaged")
    if kept := finished_models(root):
        raise NotFound(f"{root.parent} holds no finished model of {run!r}; it holds {', '.join(f.run for f in kept)}")
    raise NotFound(f"{root.parent} holds no finished model yet; a device fetches it when one of its runs has finished")


def _newest_first(root: Path) -> list[Path]:
    """Return the facts of all kept models, newest first, damaged ones included."""
    files = [file for file in root.glob(f"*/{FACTS_FILE}") if not file.parent.name.startswith(".")]
    return sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)


def remove_partial_models(root: Path) -> None:
    """Remove partial directories that a killed process left."""
    for leftover in root.glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _read(file: Path) -> Finished | None:
    try:
        facts = json.loads(file.read_bytes())
        return Finished(
            directory=file.parent,
            run=file.parent.name,
            rounds=int(facts["rounds"]),
            manifest=BlobRef(**facts["manifest"]),
            model=BlobRef(**facts["model"]),
        )
    except (OSError, ValueError, TypeError, KeyError, InvalidInput):
        return None


def _document(ref: BlobRef) -> dict[str, object]:
    return {"sha256": ref.sha256, "size": ref.size}


def _link(source: Path, target: Path) -> None:
    """Hard-link a file that never changes, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
