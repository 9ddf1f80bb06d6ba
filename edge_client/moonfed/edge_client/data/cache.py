"""A cache of samples on the device's disk until their source changes: images, and what is too large for memory.

STATE/cache/KEY holds the arrays `inputs` and `targets` as they are in memory, and their forms in samples.json. The
directory takes this name when it is complete.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.images import DECODING
from moonfed.data.source import HeartbeatCallback, Source, report
from moonfed.data.storage import Array, Storage, is_mapped, map_file, place_of
from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.files import sync_directory, sync_file

ARRAYS = ("inputs", "targets")
FORMS = "samples.json"
BUILDING = "building"
NO_SOURCE = "function"  # the key of samples whose source has no fingerprint; they are never read from the cache

_log = logging.getLogger(__name__)


class Reader:
    """Reads one source for one device, from STATE/cache if it is fresh, and notices when the samples have changed."""

    def __init__(self, source: Source, cache: Path) -> None:
        self._source, self._cache = source, cache.resolve()
        self._key: str | None = None

    def read_if_changed(
        self, spec: InputSpec, target: TargetSpec, heartbeat: HeartbeatCallback, room: int | None = None
    ) -> DataSet | None:
        """Return the samples, or None if they have not changed since the last call.

        `room`: see `Storage`. Samples that need more, and decoded ones, are mapped files; nothing may write to them.
        """
        fingerprint = self._source.fingerprint()
        key = f"{DECODING}\0{spec!r}\0{target!r}\0{fingerprint}"
        if fingerprint is not None and key == self._key:
            return None
        samples = self._fresh(spec, target, heartbeat, key if fingerprint is not None else NO_SOURCE, room)
        self._key = key
        return samples

    def _fresh(
        self, spec: InputSpec, target: TargetSpec, heartbeat: HeartbeatCallback, key: str, room: int | None
    ) -> DataSet:
        directory = self._cache / hashlib.sha256(key.encode()).hexdigest()[:32]
        cached = None if key == NO_SOURCE else _read_cached(directory, spec, target)
        if cached is not None:
            report(cached.notes)
            return cached
        building = self._cache / BUILDING
        _delete(building)
        storage = Storage(building, room, lambda: self._delete_all(building))
        try:
            samples = self._source.read(spec, target, heartbeat, storage=storage)
            if self._source.decodes or storage.filled:
                samples = _stored(samples, storage, building, directory)
        finally:
            _delete(building)
        self._delete_all(directory)
        return samples

    def _delete_all(self, kept: Path) -> None:
        """Delete what is cached, except for one directory."""
        for entry in self._cache.glob("*"):
            if entry != kept:
                _delete(entry)


def _read_cached(directory: Path, spec: InputSpec, target: TargetSpec) -> DataSet | None:
    try:
        forms = json.loads((directory / FORMS).read_bytes())
        inputs, targets = (_mapped(directory / name, forms[name]) for name in ARRAYS)
        return check_data_set(inputs, targets, spec, target, str(directory), notes=tuple(forms["notes"]))
    except FileNotFoundError:
        return None
    except (InvalidInput, OSError, ValueError, LookupError, TypeError) as error:
        _log.warning("rebuilding the damaged cache: %s", error)
        return None


def _mapped(file: Path, form: dict[str, Any]) -> Array:
    dtype, shape = np.dtype(form["dtype"]), tuple(form["shape"])
    if file.stat().st_size != dtype.itemsize * prod(shape):
        raise InvalidInput(field="size", value=file.stat().st_size, rest=f"; {file} was cut off")
    return map_file(file, dtype, shape)


def _stored(samples: DataSet, storage: Storage, building: Path, directory: Path) -> DataSet:
    """Complete the cache; a full disk only costs the cache, unless the samples are too large for memory."""
    arrays = dict(zip(ARRAYS, (samples.inputs, samples.known_targets()), strict=True))
    mapped = [name for name, array in arrays.items() if is_mapped(array)]
    try:
        for name, array in arrays.items():
            if place_of(array) != (building / name, 0):
                storage.keep(name, array)
        forms = {name: {"dtype": str(array.dtype), "shape": array.shape} for name, array in arrays.items()}
        (building / FORMS).write_text(json.dumps({**forms, "notes": samples.notes}))
        for file in building.iterdir():
            if file.name in (*ARRAYS, FORMS):
                sync_file(file)
            else:  # rows that have become windows
                file.unlink()
        _delete(directory)
        building.rename(directory)
        sync_directory(directory.parent)
    except (OSError, ResourceExhausted) as error:
        if mapped:
            raise
        _log.warning("cannot cache the decoded samples: %s", error)
        return samples
    for name in mapped:
        arrays[name] = map_file(directory / name, arrays[name].dtype, arrays[name].shape)
    return replace(samples, inputs=arrays["inputs"], targets=arrays["targets"])


def _delete(directory: Path) -> None:
    """Delete a directory of the cache; its files are cut off, which frees their space even while they are mapped."""
    for file in directory.glob("*"):
        os.truncate(file, 0)
    shutil.rmtree(directory, ignore_errors=True)
