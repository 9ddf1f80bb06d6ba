"""The space that a coordinator's storage takes: blobs that runs and releases refer to, files, and the file system."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sql

from moonfed.coordinator.storage.db import tables
from moonfed.coordinator.storage.disk_budget import used_bytes
from moonfed.encodings import ENCODED_MODEL, FLOAT32

MEASURED_SECONDS = 60.0  # validity of a measurement
WALK_SHARE = 100.0  # a measurement that took a second is valid for that many: walking must stay cheap


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Space in bytes."""

    blobs: int  # number of them
    blob_bytes: int
    state_bytes: int  # of the state directory's files
    free_bytes: int  # of the file system that it is on


class UsageMeter:
    """Measures the space seldom enough to be cheap. Blocking; one thread at a time."""

    def __init__(
        self, root: Path, totals: Callable[[], tuple[int, int]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`totals`: returns the number of blobs and their bytes."""
        self._root = root
        self._totals = totals
        self._clock = clock
        self._found: Usage | None = None
        self._valid_until = 0.0

    def measure(self) -> Usage:
        """Return a recent measurement."""
        began = self._clock()
        if self._found is None or began >= self._valid_until:
            blobs, blob_bytes = self._totals()
            self._found = Usage(
                blobs=blobs,
                blob_bytes=blob_bytes,
                state_bytes=used_bytes(self._root),
                free_bytes=shutil.disk_usage(self._root).free,
            )
            now = self._clock()
            self._valid_until = now + max(MEASURED_SECONDS, WALK_SHARE * (now - began))
        return self._found


def blob_totals(connection: sql.Connection) -> tuple[int, int]:
    """Return the number of blobs that runs and releases refer to, and their bytes."""
    runs, releases = tables.blob_references.c, tables.release_blobs.c
    blobs = sql.union(sql.select(runs.sha256, runs.size), sql.select(releases.sha256, releases.size)).subquery()
    number, size = connection.execute(
        sql.select(sql.func.count(), sql.func.coalesce(sql.func.sum(blobs.c.size), 0)).select_from(blobs)
    ).one()
    return int(number), int(size)


def encoding_of(connection: sql.Connection, sha256: str) -> str | None:
    """Return the encoding of a blob that is a file of a run's global state; None for any other blob."""
    blobs = tables.blob_references.c
    found = connection.execute(
        sql.select(blobs.role, tables.runs.c.settings)
        .join_from(tables.blob_references, tables.runs, blobs.run == tables.runs.c.run)
        .where(blobs.sha256 == sha256, blobs.round >= tables.INITIAL)
        .limit(1)
    ).first()
    if found is None:
        return None
    return str(found.settings["downlink_encoding"]) if found.role == ENCODED_MODEL else FLOAT32
