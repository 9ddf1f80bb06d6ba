"""An .npz file with `inputs` [N, …] and `labels` [N]."""

from __future__ import annotations

import hashlib
from pathlib import Path

from moonfed.edge_client.data.samples import HeartbeatCallback
from moonfed.files import require_file
from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples, read_npz


class NpzSource:
    """Samples in one .npz file, already in the bundle's dtype and shape. Pickled arrays are never opened."""

    decodes = False

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raise NotFound unless the file is there."""
        require_file("data", self.path)

    def fingerprint(self) -> str:
        """Hash path, size and modification time."""
        self.check()
        facts = self.path.stat()
        text = f"{self.path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
        return hashlib.sha256(text.encode()).hexdigest()

    def read(self, spec: InputSpec, classes: tuple[str, ...], heartbeat: HeartbeatCallback) -> RawSamples:
        """Return the file's samples."""
        heartbeat()
        return read_npz(self.path, spec, classes)
