"""Opens the `--data` source, and caches decoded samples on disk until the files change."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np

from moonfed.edge_client.data.folder import FolderSource
from moonfed.edge_client.data.function import FunctionSource
from moonfed.edge_client.data.npz import NpzSource
from moonfed.edge_client.data.samples import HeartbeatCallback, Source
from moonfed.errors import InvalidInput
from moonfed.files import sync_file
from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples, read_npz

log = logging.getLogger(__name__)


def open_source(text: str) -> Source:
    """Return the source named by FOLDER, FILE.npz or module:callable; InvalidInput for anything else."""
    path = Path(text)
    if path.suffix == ".npz":
        return NpzSource(path)
    if path.is_dir():
        return FolderSource(path)
    module, colon, name = text.partition(":")
    if colon and all(part.isidentifier() for part in [*module.split("."), name]):
        return FunctionSource(text)
    raise InvalidInput(f"data is {text!r}; it must be a folder of images, an .npz file, or module:callable")


class Reader:
    """Reads one source for one device, from STATE/cache if it is fresh, and notices when the samples have changed."""

    def __init__(self, source: Source, cache: Path) -> None:
        self._source, self._cache = source, cache
        self._key: str | None = None

    def read_if_changed(
        self, spec: InputSpec, classes: tuple[str, ...], heartbeat: HeartbeatCallback
    ) -> RawSamples | None:
        """Return the samples, or None if they have not changed since the last call."""
        fingerprint = self._source.fingerprint()
        key = f"{spec}\0{classes}\0{fingerprint}"
        if fingerprint is not None and key == self._key:
            return None
        samples = self._fresh(spec, classes, heartbeat, key)
        self._key = key
        return samples

    def _fresh(self, spec: InputSpec, classes: tuple[str, ...], heartbeat: HeartbeatCallback, key: str) -> RawSamples:
        if not self._source.decodes:
            return self._source.read(spec, classes, heartbeat)
        file = self._cache / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"
        cached = _read_cached(file, spec, classes)
        if cached is not None:
            return cached
        samples = self._source.read(spec, classes, heartbeat)
        _write_cached(file, samples)
        return samples


def _read_cached(file: Path, spec: InputSpec, classes: tuple[str, ...]) -> RawSamples | None:
    if not file.is_file():
        return None
    try:
        return read_npz(file, spec, classes)
    except InvalidInput as error:
        log.warning("rebuilding the damaged cache: %s", error)
        return None


def _write_cached(file: Path, samples: RawSamples) -> None:
    """Replace the cache by these samples; a full disk only costs the cache."""
    temporary = file.with_name("writing.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            np.savez(stream, inputs=samples.inputs, labels=samples.labels)
        sync_file(temporary)
        temporary.replace(file)
        for old in file.parent.glob("*.npz"):
            if old != file:
                old.unlink(missing_ok=True)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        log.warning("cannot cache the decoded samples: %s", error)
