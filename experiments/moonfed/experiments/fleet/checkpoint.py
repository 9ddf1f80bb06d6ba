"""Checkpoints of an unfinished simulation: one small file with which another machine resumes it.

A checkpoint is the state between two rounds. It omits the work of the open round, which is repeated; the
samples, which the recipe draws again from the data set; and the models of past rounds that have been scored.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moonfed.blobs.compression import zstd
from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.storage.db.sqlite import DATABASE_FILE, open_store
from moonfed.coordinator.storage.db.tables import BUNDLE
from moonfed.coordinator.storage.store import Store
from moonfed.edge_client.state.round_store import read_rounds
from moonfed.errors import InvalidInput, NotFound, Unavailable, WrongState
from moonfed.experiments.fleet.data import digest_of
from moonfed.experiments.fleet.layout import RUN, Layout
from moonfed.experiments.fleet.preparation import require_same
from moonfed.experiments.simulation import SOLO, Simulation
from moonfed.files import new_directory, sync_directory, sync_file
from moonfed.format_version import require_readable

FORMAT = "moonfed-checkpoint/1"
LEVEL = 9  # of compression
ATTEMPTS, PAUSE_SECONDS = 20, 0.05  # a round that ends during the copy spoils it


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A saved checkpoint."""

    file: Path
    rounds: int  # committed ones
    size: int


class _RoundEnded(Exception):
    """The simulation moved on while it was copied."""


def save_checkpoint(output: Path, file: Path) -> Checkpoint:
    """Save the simulation in `output`, whether it is running or not; `file` appears complete or not at all.

    Raises NotFound if there is no simulation, WrongState for one that has finished or not yet started to train, and
    Unavailable for one whose rounds are too short to be copied while it runs.
    """
    layout = Layout(output)
    if not layout.recipe.is_file():
        raise NotFound(field="directory", value=output, rest=", which holds no simulation")
    if layout.summary.is_file():
        raise WrongState(
            f"the simulation in {output} has finished; there is nothing to resume",
            field="finished simulation",
            value=output,
        )
    if not (layout.data.is_dir() and layout.bundle.is_dir()):
        raise WrongState(f"the simulation in {output} has not begun to train; there is nothing to save")
    file.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(ATTEMPTS):
        with TemporaryDirectory(prefix=".checkpoint-", dir=file.parent) as temporary:
            try:
                rounds = _copy(layout, Layout(Path(temporary) / "state"))
            except (_RoundEnded, FileNotFoundError, shutil.Error):
                time.sleep(PAUSE_SECONDS)
                continue
            _pack(Path(temporary) / "state", Path(temporary) / "packed")
            os.replace(Path(temporary) / "packed", file)
        sync_directory(file.parent)
        return Checkpoint(file=file, rounds=rounds, size=file.stat().st_size)
    raise Unavailable(f"the simulation in {output} changed too fast to be saved; stop it, then save it")


def restore_checkpoint(file: Path, simulation: Simulation, output: Path) -> None:
    """Unpack a checkpoint of this simulation into a new or empty directory, where it then resumes.

    Raises NotFound if there is no such file, VersionMismatch for one of another version, and InvalidInput for an
    invalid one, or another simulation's, and for a directory that holds something.
    """
    if not file.is_file():
        raise NotFound(field="checkpoint", value=file, rest="; there is no such file")
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise InvalidInput(
            field="output", value=output, rest=", which is not empty; a checkpoint needs a new directory"
        )
    with new_directory(output.absolute()) as temporary:
        _unpack(file, temporary)
        layout = Layout(temporary)
        require_readable(f"checkpoint {file}", _read_json(file, layout.checkpoint).get("format"), (FORMAT,))
        require_same(_read_json(file, layout.recipe), simulation, f"checkpoint is {str(file)!r}", "checkpoint")
        if layout.coordinator.is_dir():  # SOLO has none
            layout.coordinator.chmod(0o700)


def _copy(layout: Layout, target: Layout) -> int:
    """Copy the files needed to resume; return the number of committed rounds."""
    target.root.mkdir()
    shutil.copyfile(layout.recipe, target.recipe)
    shutil.copytree(layout.bundle, target.bundle)
    if json.loads(layout.recipe.read_bytes())["method"] == SOLO:
        rounds = 0
        _copy_results(layout, target)  # first: a party that ends now is in none, or only in its own files
        _copy_parties(layout, target, newest=1)
    else:
        rounds = _copy_coordinator(layout, target)
        _copy_parties(layout, target, newest=rounds)
        with TemporaryDirectory(dir=target.root) as temporary, _snapshot(layout, Path(temporary)) as store:
            if _committed(store) != rounds:
                raise _RoundEnded
        _copy_results(layout, target)
    facts = {"format": FORMAT, "rounds": rounds, "data_sha256": digest_of(layout.data)}
    target.checkpoint.write_text(json.dumps(facts, indent=1) + "\n")
    return rounds


def _copy_results(layout: Layout, target: Layout) -> None:
    if layout.results.is_file():
        shutil.copyfile(layout.results, target.results)


def _copy_coordinator(layout: Layout, target: Layout) -> int:
    """Copy the coordinator's state, reduced to the next round's needs; return the number of committed rounds."""
    with _snapshot(layout, target.coordinator) as store:
        newest = store.latest_round(RUN)
        if newest and newest.status in ("open", "reducing"):
            store.reopen_round(newest.id)
        rounds = _committed(store)
        metric = Manifest.from_bytes(layout.manifest.read_bytes()).metric.name
        unscored = [record.id.round for record in store.past_rounds(RUN, None, rounds) if metric not in record.metrics]
        oldest = min([*unscored, max(rounds, 1)])
        store.prune_run(RUN, Retention(last=max(1, rounds - oldest + 1), every=0))
        needed = {ref for round_ in range(BUNDLE, rounds + 1) for ref in store.global_state(RUN, round_).values()}
    _copy_blobs(layout, target, needed)
    return rounds


def _copy_blobs(layout: Layout, target: Layout, needed: set[BlobRef]) -> None:
    source, copies = BlobDirectory(layout.coordinator / "blobs"), BlobDirectory(target.coordinator / "blobs")
    for ref in needed:
        copies.path(ref.sha256).parent.mkdir(exist_ok=True)
        shutil.copyfile(source.path(ref.sha256), copies.path(ref.sha256))
    for file in source.root.iterdir():  # the note of which database these belong to
        if file.is_file():
            shutil.copyfile(file, copies.root / file.name)


def _copy_parties(layout: Layout, target: Layout, newest: int) -> None:
    """Copy the parties' state up to that round; for a party that trains alone, its complete results."""
    for runs in layout.root.glob("parties/*/runs"):
        for stored in read_rounds(runs / RUN):
            if stored.round <= newest:
                place = stored.directory.relative_to(layout.root)
                shutil.copytree(stored.directory, target.root / place)
                if any(
                    not (target.root / place / stored.file(role).name).is_file()
                    for role in (*stored.update.blobs, *stored.update.kept)
                ):
                    raise _RoundEnded  # the party was deleting it


@contextmanager
def _snapshot(layout: Layout, directory: Path) -> Iterator[Store]:
    """Open a consistent copy, in that directory, of the database that the coordinator may be writing."""
    if not (layout.coordinator / DATABASE_FILE).is_file():
        raise WrongState(f"the simulation in {layout.root} has not begun to train; there is nothing to save")
    directory.mkdir(exist_ok=True)
    copy = directory / DATABASE_FILE
    uri = f"{(layout.coordinator / DATABASE_FILE).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=60)) as source, closing(sqlite3.connect(copy)) as snapshot:
        source.backup(snapshot)
    store = open_store(copy)
    try:
        if not store.runs():
            raise WrongState(f"the simulation in {layout.root} has not begun to train; there is nothing to save")
        yield store
    finally:
        store.close()


def _committed(store: Store) -> int:
    newest = store.latest_round(RUN, "committed")
    return newest.id.round if newest else 0


def _pack(source: Path, target: Path) -> None:
    with target.open("wb") as file:
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: LEVEL,
            zstd.CompressionParameter.checksum_flag: 1,
        }
        with (
            zstd.ZstdFile(file, "wb", options=options) as stream,
            tarfile.open(fileobj=stream, mode="w|") as archive,
        ):
            for path in sorted(source.rglob("*")):
                archive.add(path, arcname=str(path.relative_to(source)), recursive=False, filter=_anonymous)
    sync_file(target)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and modification time."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _unpack(file: Path, directory: Path) -> None:
    """Unpack regular files and directories, and nothing outside the directory."""
    try:
        with (
            zstd.ZstdFile(file) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            for member in archive:
                if not (member.isfile() or member.isdir()):
                    raise InvalidInput(
                        field="checkpoint", value=file, rest=f", which holds {member.name!r}, not a plain file"
                    )
                archive.extract(member, directory, filter="data")
    except (tarfile.TarError, zstd.ZstdError, EOFError) as error:
        raise InvalidInput(field="checkpoint", value=file, rest=f", which is not a checkpoint: {error}") from error


def _read_json(file: Path, path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            field="checkpoint", value=file, rest=f", which is not a checkpoint: {path.name} is missing"
        ) from error
    if not isinstance(found, dict):
        raise InvalidInput(field="checkpoint", value=file, rest=f", which is not a checkpoint: {path.name} is damaged")
    return found
