"""A cache of decoded samples on the device's disk, until the files change."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet
from moonfed.data.images import DECODING
from moonfed.data.npz import NpzSource
from moonfed.data.source import HeartbeatCallback, Source, report
from moonfed.errors import InvalidInput
from moonfed.files import sync_file

_log = logging.getLogger(__name__)


class Reader:
    """Reads one source for one device, from STATE/cache if it is fresh, and notices when the samples have changed."""

    def __init__(self, source: Source, cache: Path) -> None:
        self._source, self._cache = source, cache
        self._key: str | None = None

    def read_if_changed(self, spec: InputSpec, target: TargetSpec, heartbeat: HeartbeatCallback) -> DataSet | None:
        """Return the samples, or None if they have not changed since the last call."""
        fingerprint = self._source.fingerprint()
        key = f"{DECODING}\0{spec!r}\0{target!r}\0{fingerprint}"
        if fingerprint is not None and key == self._key:
            return None
        samples = self._fresh(spec, target, heartbeat, key)
        self._key = key
        return samples

    def _fresh(self, spec: InputSpec, target: TargetSpec, heartbeat: HeartbeatCallback, key: str) -> DataSet:
        if not self._source.decodes:
            return self._source.read(spec, target, heartbeat)
        file = self._cache / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
        cached = _read_cached(file, spec, target)
        if cached is not None:
            report(cached.notes)
            return cached
        samples = self._source.read(spec, target, heartbeat)
        _write_cached(file, samples)
        return samples


def _read_cached(file: Path, spec: InputSpec, target: TargetSpec) -> DataSet | None:
    if not file.is_file():
        return None
    try:
        samples = NpzSource(file).read(spec, target)
        with np.load(file, allow_pickle=False) as arrays:
            return replace(samples, notes=tuple(arrays["notes"].tolist()))
    except InvalidInput as error:
        _log.warning("rebuilding the damaged cache: %s", error)
        return None


def _write_cached(file: Path, samples: DataSet) -> None:
    """Replace the cache by these samples; a full disk only costs the cache."""
    temporary = file.with_name("writing.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            targets = samples.known_targets()
            np.savez(stream, inputs=samples.inputs, targets=targets, notes=np.array(samples.notes, np.str_))
        sync_file(temporary)
        temporary.replace(file)
        for old in file.parent.glob("*.npz"):
            if old != file:
                old.unlink(missing_ok=True)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        _log.warning("cannot cache the decoded samples: %s", error)
