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
from moonfed.edge_client.state.round_store import RunState, StoredRound, newest_round, run_directory
from moonfed.errors import InvalidInput
from moonfed.files import link_or_copy, new_directory

LOCAL_KEPT = 2  # runs that have ended
MODEL_FILE, FACTS_FILE = "model.safetensors", "local.json"

_log = logging.getLogger(__name__)


def find_local_model(state: Path, run: str, *, manifest: str, seed: int) -> Path | None:
    """Return the file of the model that this device trained last in a run; None if it has none, or it is damaged.

    `manifest`: its sha256, which with the seed distinguishes runs of the same name.
    """
    if stored := RunState(state / "runs", run, manifest=manifest, seed=seed).newest():
        return stored.model_file
    directory = run_directory(state / "local", run)
    try:
        facts = json.loads((directory / FACTS_FILE).read_bytes())
        same_run = (facts["manifest"], facts["seed"]) == (manifest, seed)
        whole = same_run and ref_of_file(directory / MODEL_FILE) == BlobRef(**facts["model"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, InvalidInput) as error:
        _log.warning("ignoring the damaged %s: %s", directory, error)
        return None
    return directory / MODEL_FILE if whole else None


def keep_local_model(state: Path, run: str) -> None:
    """Keep this device's latest model of a run whose other files are about to be deleted; idempotent."""
    if stored := newest_round(run_directory(state / "runs", run)):
        _store(stored, run_directory(state / "local", run))
    kept = [file.parent for file in (state / "local").glob(f"*/{FACTS_FILE}") if not file.parent.name.startswith(".")]
    for old in sorted(kept, key=lambda path: path.stat().st_mtime_ns, reverse=True)[LOCAL_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _store(stored: StoredRound, directory: Path) -> None:
    update, ref = stored.update, stored.model
    facts = {"manifest": update.manifest, "seed": update.seed, "model": {"sha256": ref.sha256, "size": ref.size}}
    with new_directory(directory) as temporary:
        link_or_copy(stored.model_file, temporary / MODEL_FILE)
        (temporary / FACTS_FILE).write_text(json.dumps(facts))


def remove_partial_local_models(state: Path) -> None:
    """Remove partial directories that a killed process left."""
    for leftover in (state / "local").glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)
