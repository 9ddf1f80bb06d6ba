"""The directory of the tests' temporary files: in memory, where there is room for them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")
ROOM = 12 << 30  # bytes; the tests need up to 3 GB for files, and 7 GB for processes


def use_memory() -> None:
    """Make temporary files in memory, unless the environment chooses a directory or little is free.

    The tests of power losses record what is synchronised, so none needs a disk.
    """
    if "TMPDIR" in os.environ or not SHARED_MEMORY.is_dir():
        return
    if min(shutil.disk_usage(SHARED_MEMORY).free, psutil.virtual_memory().available) > ROOM:
        os.environ["TMPDIR"] = tempfile.tempdir = str(SHARED_MEMORY)
