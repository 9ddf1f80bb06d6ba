"""A device's own latest model of each run, for evaluations: while it trains the run, and after that has ended.

Of a run that has ended, STATE/local/RUN/ has the model and `local.json`. A directory appears whole or not at all. This
module is used by the light parent process, so it imports neither torch nor numpy.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.bundle.manifest import MODEL, PERSONAL
from moonfed.edge_client.state.round_store import RunState, StoredRound, newest_round, run_directory
from moonfed.errors import InvalidInput
from moonfed.files import link_or_copy, new_directory

LOCAL_KEPT = 2  # runs that have ended
FACTS_FILE = "local.json"
ROLES = (MODEL, PERSONAL)

_log = logging.getLogger(__name__)


def find_local_model(state: Path, run: str, role: str = MODEL, *, manifest: str, seed: int | None) -> Path | None:
    """Return the file of the model that this device trained last in a run; None if it has none, or it is damaged.

    `role`: MODEL, or PERSONAL for its own tensors. `manifest`: its sha256, which with the seed tells runs of the same
    name apart; None: any seed.
    """
    if stored := RunState(state / "runs", run, manifest=manifest, seed=seed).newest(role):
        return stored.file(role)
    directory = run_directory(state / "local", run)
    file = directory / f"{role}.safetensors"
    try:
        facts = json.loads((directory / FACTS_FILE).read_bytes())
        same_run = facts["manifest"] == manifest and seed in (None, facts["seed"])
        whole = same_run and role in facts["files"] and ref_of_file(file) == BlobRef.from_document(facts["files"][role])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, InvalidInput) as error:
        _log.warning("ignoring the damaged %s: %s", directory, error)
        return None
    return file if whole else None


def keep_local_model(state: Path, run: str) -> None:
    """Keep this device's latest model and own tensors of a run whose files are about to be deleted; idempotent."""
    if stored := newest_round(run_directory(state / "runs", run)):
        _store(stored, run_directory(state / "local", run))
    kept = [file.parent for file in (state / "local").glob(f"*/{FACTS_FILE}") if not file.parent.name.startswith(".")]
    for old in sorted(kept, key=lambda path: path.stat().st_mtime_ns, reverse=True)[LOCAL_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _store(stored: StoredRound, directory: Path) -> None:
    update = stored.update
    refs = {role: ref for role, ref in {**update.blobs, **update.kept}.items() if role in ROLES}
    files = {role: {"sha256": ref.sha256, "size": ref.size} for role, ref in refs.items()}
    facts = {"manifest": update.manifest, "seed": update.seed, "files": files}
    with new_directory(directory) as temporary:
        for role in files:
            link_or_copy(stored.file(role), temporary / f"{role}.safetensors")
        (temporary / FACTS_FILE).write_text(json.dumps(facts))


def remove_partial_local_models(state: Path) -> None:
    """Remove partial directories that a killed process left."""
    for leftover in (state / "local").glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)
