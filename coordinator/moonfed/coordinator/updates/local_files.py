"""Updates whose files lie on this machine already, as those of a virtual fleet: linked into the spool, not sent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from moonfed.blobs import ref_of_file
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.errors import Corrupt, NotFound
from moonfed.files import sync_file


def link_files(header: UpdateHeader, files: Mapping[str, Path], directory: Path) -> dict[str, Path]:
    """Links, or else copies, an update's files into an empty directory; durable and checked, by sha256. Blocking.

    The originals, by role, stay their owner's, who may delete but not change them while the round lasts. Raises
    NotFound for one that is not there, Corrupt for one that is not what the header says.
    """
    taken = {}
    for role, ref in header.blobs.items():
        if not files[role].is_file():
            raise NotFound(f"there is no file {files[role]}, which should hold the update's {role}")
        place = directory / ref.sha256
        if not place.exists():  # two roles may hold the same bytes
            _link_or_copy(files[role], place)
        if ref_of_file(place) != ref:
            raise Corrupt(f"the file {files[role]}, the update's {role}, has another sha256 than its header says")
        sync_file(place)
        taken[ref.sha256] = place
    return taken


def _link_or_copy(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, place)
