"""Free disk space, compared with what a round writes before anything large is fetched for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence

from moonfed.blobs.schema import ITEM_SIZE, TensorSpec, model_size
from moonfed.blobs.store import BlobDirectory, BlobRef
from moonfed.bundle.manifest import Manifest, parts_of
from moonfed.errors import ResourceExhausted
from moonfed.fleet.assignment import Assignment
from moonfed.sizes import human

FILES_BYTES = 1 << 20  # of headers, metadata and directories


def require_disk(
    assignment: Assignment, manifest: Manifest, plan: BlobRef, blobs: BlobDirectory, models: BlobDirectory
) -> None:
    """Raise ResourceExhausted, with both sizes, unless the disk has room for the round's files."""
    require_free(round_bytes(assignment, manifest, plan, blobs, models), models, "the round")


def require_free(needed: int, models: BlobDirectory, work: str) -> None:
    """Raise ResourceExhausted, with both sizes, unless the disk has room for what the work writes."""
    free = shutil.disk_usage(models.root).free
    if free < needed:
        raise ResourceExhausted(
            f"the disk of this device has {human(free)} free; {work} needs {human(needed)}",
            field="free disk",
            value=free,
        )


def require_space(subject: str, refs: Iterable[BlobRef], blobs: BlobDirectory) -> None:
    """Raise ResourceExhausted, with both sizes, unless the disk has room for files that are to be fetched."""
    require_free(_absent(blobs, refs) + FILES_BYTES, blobs, subject)


def round_bytes(
    assignment: Assignment, manifest: Manifest, plan: BlobRef, blobs: BlobDirectory, models: BlobDirectory
) -> int:
    """Return the bytes that a round writes: what has to be fetched, the trained model, and what goes with it.

    `plan`: that the round runs. If updates are encoded, the encoded model and the encoding error are stored, too; with
    privacy, the clipped model.
    """
    once = [plan, *parts_of(manifest).values()]
    absent = _absent(blobs, once) + _absent(models, assignment.blobs.values())
    copies = 3 if assignment.encodings.updates_encoded else 2 if assignment.private else 1
    written = copies * model_size(manifest.tensors) + _elements(manifest.uplink) + _elements(manifest.device_state)
    return absent + ITEM_SIZE * written + FILES_BYTES


def _absent(directory: BlobDirectory, refs: Iterable[BlobRef]) -> int:
    return sum(ref.size for ref in refs if not directory.has(ref))


def _elements(roles: Mapping[str, Sequence[TensorSpec]]) -> int:
    return sum(model_size(specs) for specs in roles.values())
