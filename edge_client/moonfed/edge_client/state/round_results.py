"""Files of a round outside the device's state: its inputs, and its results until they are stored.

The trainer, which runs plans in a sandbox, gets the former by path and writes the latter to a directory; only the agent
reads and writes the state. This module imports neither torch nor numpy.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.bundle.manifest import MODEL, PERSONAL, Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import MODEL_ERROR, RunState, StoredRound, Write
from moonfed.encodings import ENCODED_MODEL, PLAIN, temporary_file
from moonfed.errors import TrainingFailed

_log = logging.getLogger(__name__)

INITIAL_MODEL = "initial_model"  # the decoded global model, if it was encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResults:
    """The results of one round; `directory` has a file for each of `result_roles`."""

    directory: Path
    samples: int
    steps: int
    metrics: Mapping[str, float]


def result_file(directory: Path, role: str) -> Path:
    """Return the file of a role's result."""
    return directory / f"{role}.safetensors"


def written_files(manifest: Manifest, job: Job) -> tuple[str, ...]:
    """Return the names of all files that a round writes, results and others."""
    encodings = job.encodings
    names = [result_file(Path(), role).name for role in result_roles(manifest, job)]
    if encodings.down != PLAIN:
        names.append(INITIAL_MODEL)
    if encodings.down.compressed:
        names.append(temporary_file(INITIAL_MODEL))
    if encodings.up.compressed:
        names.append(temporary_file(result_file(Path(), ENCODED_MODEL).name))
    return tuple(names)


def result_roles(manifest: Manifest, job: Job) -> tuple[str, ...]:
    """Return the roles of a round's result files."""
    roles = (MODEL, *manifest.uplink, *manifest.device_state)
    if job.sends_copy:
        roles += (ENCODED_MODEL, *((MODEL_ERROR,) if job.encodings.up.lossy else ()))
    return roles


def with_kept_files(job: Job, state: RunState, manifest: Manifest) -> Job:
    """Add the device's own input files to a job: previous models and device state.

    Its personal tensors are lost if the coordinator or this disk knows of an earlier round, and none of them is intact.
    """
    previous = state.previous(job.id.round, job.id.attempt, manifest.previous_models)
    kept = state.device_state(*job.counted_key, [role for role in manifest.device_state if role != PERSONAL])
    newest = state.newest(PERSONAL) if manifest.personal else None  # whether or not its round counted
    if newest:
        kept |= {PERSONAL: newest.file(PERSONAL)}
    lost = bool(manifest.personal) and newest is None and bool(job.counted or state.newest())
    if lost:
        _log.warning("this device's personal tensors of run %s are lost; it begins again with the bundle's", job.id.run)
    if job.encodings.up.lossy:
        kept |= state.device_state(*job.counted_key, [MODEL_ERROR])
    return replace(
        job,
        previous_models=tuple(str(stored.model_file) for stored in previous),
        kept={role: str(file) for role, file in kept.items()},
        personal_lost=lost,
    )


def save_results(state: RunState, job: Job, manifest: Manifest, results: RoundResults) -> StoredRound:
    """Move a round's results into the device's state; TrainingFailed if one of them is not a plain file.

    `job`: as `with_kept_files` returned it.
    """
    roles = result_roles(manifest, job)
    for role in roles:
        _require_plain(result_file(results.directory, role))
    return state.save(
        job.id.round,
        job.id.attempt,
        files={role: _mover(result_file(results.directory, role)) for role in roles},
        kept=[*manifest.device_state, MODEL_ERROR, *([MODEL] if ENCODED_MODEL in roles else [])],
        assignment=job.digest,
        samples=results.samples,
        steps=results.steps,
        metrics=results.metrics,
        personal_lost=job.personal_lost,
        keep=manifest.previous_models + 1,
        counted=job.counted_key,
    )


def _require_plain(file: Path) -> None:
    """Raise TrainingFailed for a link, a pipe or a missing file, which a malicious plan could leave."""
    try:
        facts = file.lstat()
    except OSError as error:
        raise TrainingFailed(f"the plan's process left no {file.name}") from error
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
        raise TrainingFailed(f"the plan's process left a {file.name} that is not a plain file")
    if facts.st_size == 0:  # it was created for the process
        raise TrainingFailed(f"the plan's process left an empty {file.name}")


def _mover(file: Path) -> Write:
    return lambda place: os.replace(file, place)
