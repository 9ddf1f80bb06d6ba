"""What a device keeps of its rounds: STATE/runs/RUN/ROUND-ATTEMPT/ with the trained model and its update.

A directory appears whole or not at all. Trained models serve twice: an update that was not acknowledged is submitted
again without training, and the newest ones are the previous models of later rounds, whether they were counted or not.
This module is used by the light parent process too, so it imports neither torch nor numpy.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from moonfed.blobs import BlobRef, ref_of_file
from moonfed.errors import InvalidInput
from moonfed.files import new_directory

MODEL_FILE, UPDATE_FILE = "model.safetensors", "update.json"
RUNS_KEPT = 8  # directories of runs; the ones used longest ago go first
BLOBS_KEPT = 2 * RUNS_KEPT  # a manifest and a plan for each; the ones used longest ago go first
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ROUND = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The facts about one trained model."""

    assignment: str  # the digest of what was trained
    model: BlobRef
    samples: int
    steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StoredRound:
    """One whole directory of a run."""

    directory: Path
    round: int
    attempt: int
    update: Update

    @property
    def model_file(self) -> Path:
        """The trained model, safetensors."""
        return self.directory / MODEL_FILE

    @property
    def place(self) -> tuple[int, int]:
        """Orders the rounds of a run."""
        return self.round, self.attempt


class RunState:
    """The trained models of one run on this device."""

    def __init__(self, root: Path, run: str) -> None:
        """`root` is STATE/runs; raises InvalidInput for a run id that is no plain file name."""
        if not _RUN.fullmatch(run):
            raise InvalidInput(
                f"run is {run!r}; it must be 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"
            )
        self.directory = root / run

    def find(self, round_number: int, attempt: int, assignment: str) -> StoredRound | None:
        """The model trained for that round and exactly that assignment, given its digest, if it is whole."""
        wanted = (round_number, attempt)
        found = [stored for stored in self._stored() if stored.place == wanted and _is_whole(stored)]
        return found[0] if found and found[0].update.assignment == assignment else None

    def previous(self, round_number: int, attempt: int, count: int) -> list[StoredRound]:
        """The newest `count` models trained before that round and attempt, newest first, counted or not."""
        before = (round_number, attempt)
        earlier = (stored for stored in self._stored() if stored.place < before and _is_whole(stored))
        return list(islice(earlier, count))

    def forget_later(self, round_number: int, attempt: int) -> None:
        """Drops what claims to lie ahead of the assigned round: it belongs to another run of the same name."""
        for stored in self._stored():
            if stored.place > (round_number, attempt):
                log.warning("dropping %s: the run is only at round %d", stored.directory, round_number)
                shutil.rmtree(stored.directory, ignore_errors=True)

    def save(
        self,
        round_number: int,
        attempt: int,
        *,
        write: Callable[[Path], None],
        assignment: str,
        samples: int,
        steps: int,
        metrics: Mapping[str, float],
        keep: int,
    ) -> StoredRound:
        """Stores a trained model durably, `write` writing its file, then keeps only the newest `keep` of the run."""
        directory = self.directory / f"{round_number}-{attempt}"
        with new_directory(directory) as temporary:
            write(temporary / MODEL_FILE)
            update = Update(
                assignment=assignment,
                model=ref_of_file(temporary / MODEL_FILE),
                samples=samples,
                steps=steps,
                metrics=metrics,
            )
            (temporary / UPDATE_FILE).write_text(json.dumps(asdict(update)))
        for stored in self._stored()[keep:]:
            shutil.rmtree(stored.directory, ignore_errors=True)
        return StoredRound(directory, round_number, attempt, update)

    def _stored(self) -> list[StoredRound]:
        """All directories that can be read, newest first; others are skipped with a warning."""
        stored = []
        for directory in self.directory.iterdir() if self.directory.is_dir() else ():
            match = _ROUND.fullmatch(directory.name)
            update = _read_update(directory) if match else None
            if match and update:
                stored.append(StoredRound(directory, int(match[1]), int(match[2]), update))
        return sorted(stored, key=lambda entry: entry.place, reverse=True)


@contextmanager
def writing(state: Path) -> Iterator[None]:
    """Says in one sentence that the state directory cannot be written, and why."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"state is {str(state)!r}, which cannot be written: {error.strerror}") from error


def tidy(runs: Path, blobs: Path) -> None:
    """Removes what a killed process left half-written in STATE/runs, and the runs and blobs used longest ago.

    Not while the child trains: what it writes is half-written, too.
    """
    for leftover in runs.glob("*/.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for run in _used_longest_ago(runs.glob("*"), RUNS_KEPT):
        shutil.rmtree(run, ignore_errors=True)
    for blob in _used_longest_ago(blobs.glob("*/*"), BLOBS_KEPT):
        blob.unlink(missing_ok=True)


def _used_longest_ago(paths: Iterable[Path], kept: int) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)[kept:]


def _read_update(directory: Path) -> Update | None:
    try:
        fields = json.loads((directory / UPDATE_FILE).read_bytes())
        return Update(**{**fields, "model": BlobRef(**fields["model"])})
    except (OSError, ValueError, TypeError, KeyError, InvalidInput) as error:
        log.warning("skipping the damaged %s: %s", directory, error)
        return None


def _is_whole(stored: StoredRound) -> bool:
    try:
        whole = ref_of_file(stored.model_file) == stored.update.model
    except OSError:
        whole = False
    if not whole:
        log.warning("skipping the damaged %s: %s is not what was written", stored.directory, MODEL_FILE)
    return whole
