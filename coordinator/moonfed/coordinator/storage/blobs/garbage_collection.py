"""Deletes blobs that nothing refers to any more.

The rows that refer to a blob go first, in a transaction; the blob goes after it. A kill between the two leaves a blob
that nobody needs, never a reference without its blob; what was left so is swept when the coordinator starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from moonfed.blobs import BlobRef
from moonfed.coordinator.storage.state_directory import StateDirectory
from moonfed.errors import MoonfedError
from moonfed.manifest import Manifest

_log = logging.getLogger(__name__)
UPLOAD_SECONDS = 24 * 3600.0  # after which an uploaded bundle that no run was started from has been given up


def discard(state: StateDirectory, blobs: Iterable[BlobRef]) -> int:
    """Deletes those of the blobs that nothing refers to; bytes freed. Blocking."""
    freed = 0
    for ref in blobs:

        def delete(ref: BlobRef = ref) -> None:
            nonlocal freed
            if not state.store.refers_to(ref.sha256):
                state.blobs.delete(ref.sha256)
                freed += ref.size

        try:
            state.pins.unless_pinned(ref.sha256, delete)
        except Exception as error:  # it stays for the next sweep: nothing depends on its going
            _log.error("blob %s cannot be deleted", ref.sha256[:12], exc_info=error)
    state.budget.freed()
    return freed


def sweep(state: StateDirectory) -> None:
    """Deletes what a kill or an upload that was given up has left. Blocking.

    Not as long as a run's bundle is unknown because its manifest is damaged: it may be put back from a backup.
    """
    known = [_complete(state, run.run, run.manifest) for run in state.store.runs_without_bundle()]
    if all(known):
        freed = discard(state, state.blobs.unused_since(UPLOAD_SECONDS))
        if freed:
            _log.info("deleted %d bytes of blobs that nothing refers to", freed)


def _complete(state: StateDirectory, run: str, manifest: BlobRef) -> bool:
    """Finds out which bundle files a run needs that an older release has recorded without them."""
    try:
        files = Manifest.from_bytes(state.blobs.read(manifest)).files
    except (MoonfedError, OSError) as error:
        _log.warning("run %r: its bundle's files are not known (%s); no blobs are swept", run, error)
        return False
    state.store.add_bundle(run, files)
    return True
