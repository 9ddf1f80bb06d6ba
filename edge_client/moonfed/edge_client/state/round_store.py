"""A device's files of its rounds: STATE/runs/RUN/ROUND-ATTEMPT/ with ROLE.safetensors and update.json.

A directory appears whole or not at all. It has three uses: an unacknowledged update is resubmitted without training;
the newest models are the previous models of later rounds, counted or not; and the next round starts from the device
state of the latest counted round. If the run's uplink encoding is lossy, `encoded_model` is submitted; `model` and
`model_error`, the encoding error, stay on the device.
This module is used by the light parent process too, so it imports neither torch nor numpy.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.bundle.manifest import MODEL
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.files import new_directory
from moonfed.format_version import known_fields
from moonfed.validate import NAME, NAME_RULE, require

UPDATE_FILE = "update.json"
MODEL_ERROR = "model_error"  # the role of the accumulated encoding error of counted updates
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)  # which a restart may find mended
_ROUND = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)")

Write = Callable[[Path], None]  # writes one file
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Metadata of one round's results."""

    manifest: str  # its sha256, which with the seed distinguishes runs of the same name
    seed: int
    assignment: str  # the digest of the trained assignment
    blobs: Mapping[str, BlobRef]  # by role: the submitted files
    kept: Mapping[str, BlobRef]  # by role: what stays on the device, including its state
    samples: int
    steps: int
    metrics: Mapping[str, float]
    personal_lost: bool = False  # it began with the bundle's personal tensors again


@dataclass(frozen=True, slots=True)
class StoredRound:
    """One complete directory of a run."""

    directory: Path
    round: int
    attempt: int
    update: Update

    def file(self, role: str) -> Path:
        """Return one role's safetensors file."""
        return self.directory / f"{role}.safetensors"

    @property
    def model_file(self) -> Path:
        """The trained model's."""
        return self.file(MODEL)

    @property
    def model(self) -> BlobRef:
        """The trained model's."""
        return {**self.update.blobs, **self.update.kept}[MODEL]

    @property
    def outgoing(self) -> dict[str, tuple[BlobRef, Path]]:
        """Files to submit, by role: for the model the encoded file, if there is one."""
        blobs = self.update.blobs
        return {MODEL if role == ENCODED_MODEL else role: (ref, self.file(role)) for role, ref in blobs.items()}

    @property
    def key(self) -> tuple[int, int]:
        """Round and attempt, by which the rounds of a run are ordered."""
        return self.round, self.attempt


class RunState:
    """One run's files on this device. Files of another run of the same name are never used."""

    def __init__(self, root: Path, run: str, *, manifest: str, seed: int | None) -> None:
        """`root`: STATE/runs; `manifest`: its sha256; `seed`: None to read rounds of any seed.

        Raises InvalidInput for a run id that is not a plain file name.
        """
        self.directory = run_directory(root, run)
        self._manifest, self._seed = manifest, seed

    def find(self, round_number: int, attempt: int, assignment: str) -> StoredRound | None:
        """Return the intact update of exactly that assignment, given its digest; None if there is none."""
        stored = self._at((round_number, attempt))
        if stored is None or stored.update.assignment != assignment:
            return None
        return stored if _is_whole(stored, [*stored.update.blobs, *stored.update.kept]) else None

    def newest(self, role: str = MODEL) -> StoredRound | None:
        """Return the round of what this device trained last, by default the model; None if there is no intact one."""
        return next((stored for stored in self._stored() if _is_whole(stored, [role])), None)

    def previous(self, round_number: int, attempt: int, count: int) -> list[StoredRound]:
        """Return the newest `count` models trained before a round and attempt, newest first, counted or not."""
        before = (round_number, attempt)
        earlier = (stored for stored in self._stored() if stored.key < before and _is_whole(stored, [MODEL]))
        return list(islice(earlier, count))

    def device_state(self, round_number: int, attempt: int, roles: Collection[str]) -> dict[str, Path]:
        """Return the files of the device state that a counted round left, by role; round 0 left none.

        Returns none, with a warning, if any of them is missing or damaged.
        """
        if round_number == 0 or not roles:
            return {}
        stored = self._at((round_number, attempt))
        if stored is not None and _is_whole(stored, roles):
            return {role: stored.file(role) for role in roles}
        _log.warning("this device's state of round %d (attempt %d) is lost; starting without it", round_number, attempt)
        return {}

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Provide a path for a temporary directory; garbage collection removes what a kill leaves."""
        directory = self.directory / ".scratch"
        shutil.rmtree(directory, ignore_errors=True)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def delete_foreign_rounds(self, round_number: int, attempt: int) -> None:
        """Delete rounds of another run with the same name, and rounds after the assigned one."""
        for stored in read_rounds(self.directory):
            if not self._owns(stored) or stored.key > (round_number, attempt):
                _log.warning(
                    "deleting %s: its run is another one of this name, or its round is later than the one assigned",
                    stored.directory,
                )
                shutil.rmtree(stored.directory, ignore_errors=True)

    def save(
        self,
        round_number: int,
        attempt: int,
        *,
        files: Mapping[str, Write],
        kept: Collection[str],
        assignment: str,
        samples: int,
        steps: int,
        metrics: Mapping[str, float],
        keep: int,
        counted: tuple[int, int] = (0, 0),
        personal_lost: bool = False,
    ) -> StoredRound:
        """Store a round's results durably; a function per role writes the file.

        `kept`: the roles that stay on the device. Only the newest `keep` rounds of the run remain, and `counted`, the
        key of the round whose device state is in effect until the coordinator names another.
        """
        directory = self.directory / f"{round_number}-{attempt}"
        with new_directory(directory) as temporary:
            for role, write in files.items():
                write(temporary / f"{role}.safetensors")
            refs = {role: ref_of_file(temporary / f"{role}.safetensors") for role in files}
            update = Update(
                manifest=self._manifest,
                seed=self._seed or 0,
                assignment=assignment,
                blobs={role: ref for role, ref in refs.items() if role not in kept},
                kept={role: ref for role, ref in refs.items() if role in kept},
                samples=samples,
                steps=steps,
                metrics=metrics,
                personal_lost=personal_lost,
            )
            (temporary / UPDATE_FILE).write_text(json.dumps(asdict(update)))
        for stored in self._stored()[keep:]:
            if stored.key != counted:
                shutil.rmtree(stored.directory, ignore_errors=True)
        return StoredRound(directory, round_number, attempt, update)

    def _stored(self) -> list[StoredRound]:
        """Return this run's stored rounds, newest first."""
        owned = [stored for stored in read_rounds(self.directory) if self._owns(stored)]
        return sorted(owned, key=lambda stored: stored.key, reverse=True)

    def _at(self, place: tuple[int, int]) -> StoredRound | None:
        return next((stored for stored in self._stored() if stored.key == place), None)

    def _owns(self, stored: StoredRound) -> bool:
        return stored.update.manifest == self._manifest and self._seed in (None, stored.update.seed)


def run_directory(root: Path, run: str) -> Path:
    """Return a run's directory; raise InvalidInput for a run id that is not a plain file name."""
    require(bool(NAME.fullmatch(run)), "run", run, NAME_RULE)
    return root / run


def newest_round(run: Path) -> StoredRound | None:
    """Return the last round with an intact model in a run's directory; None if there is none."""
    rounds = sorted(read_rounds(run), key=lambda stored: stored.key, reverse=True)
    return next((stored for stored in rounds if _is_whole(stored, [MODEL])), None)


def newest_samples(runs: Path) -> int:
    """Return the number of samples that this device last trained on, in any run; 0 if none."""
    newest, samples = 0, 0
    with suppress(OSError):  # the worker deletes old rounds concurrently
        for file in runs.glob(f"*/*/{UPDATE_FILE}"):
            changed = file.stat().st_mtime_ns
            with suppress(ValueError, TypeError, KeyError):  # a damaged one
                if changed > newest:
                    newest, samples = changed, int(json.loads(file.read_bytes())["samples"])
    return samples


@contextmanager
def writing(state: Path) -> Iterator[None]:
    """Report in one sentence that the state directory cannot be written, and why.

    Raises ResourceExhausted if the disk is full or read-only, which may pass, and InvalidInput otherwise.
    """
    try:
        yield
    except OSError as error:
        kind = ResourceExhausted if error.errno in DISK_ERRORS else InvalidInput
        raise kind(f"state is {str(state)!r}, which cannot be written: {error.strerror}") from error


def read_rounds(run: Path) -> Iterator[StoredRound]:
    """Return all readable round directories; log and skip the others."""
    for directory in run.iterdir() if run.is_dir() else ():
        match = _ROUND.fullmatch(directory.name)
        update = _read_update(directory) if match else None
        if match and update:
            yield StoredRound(directory, int(match[1]), int(match[2]), update)


def _read_update(directory: Path) -> Update | None:
    try:
        written = json.loads((directory / UPDATE_FILE).read_bytes())
        refs = {
            key: {role: BlobRef.from_document(ref) for role, ref in written[key].items()} for key in ("blobs", "kept")
        }
        return Update(**known_fields(Update, written | refs))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, InvalidInput) as error:
        _log.warning("skipping the damaged %s: %s", directory, error)
        return None


def _is_whole(stored: StoredRound, roles: Collection[str]) -> bool:
    written = {**stored.update.blobs, **stored.update.kept}
    for role in roles:
        try:
            whole = ref_of_file(stored.file(role)) == written.get(role)
        except OSError:
            whole = False
        if not whole:
            _log.warning("skipping the damaged %s: its %s differs from what was written", stored.directory, role)
            return False
    return True
