"""Updates whose files are on this machine already, such as a virtual fleet's: linked into the spool instead of sent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from moonfed.blobs.store import ref_of_file
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.errors import Corrupt, NotFound
from moonfed.files import sync_file


def link_files(header: UpdateHeader, files: Mapping[str, Path], directory: Path) -> dict[str, Path]:
    """Link or else copy an update's files, by role, into an empty directory; returns them by sha256. Blocking.

    The links are checked and durable. The originals still belong to the caller, who may delete but not change them
    during the round. Raises NotFound for a missing file, Corrupt for one that differs from the header.
    """
    linked = {}
    for role, ref in header.blobs.items():
        if not files[role].is_file():
            raise NotFound(
                f"there is no file {files[role]}, which should hold the update's {role}",
                field="file",
                value=files[role],
            )
        target = directory / ref.sha256
        if not target.exists():  # two roles may hold the same bytes
            _link_or_copy(files[role], target)
        if ref_of_file(target) != ref:
            raise Corrupt(
                f"the file {files[role]}, the update's {role}, does not match the sha256 in its header", field=role
            )
        sync_file(target)
        linked[ref.sha256] = target
    return linked


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
