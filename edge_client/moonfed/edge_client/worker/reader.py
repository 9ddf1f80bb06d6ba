"""The reader: runs the device's own data source, outside the sandbox, and hands samples to the trainer.

It is started by `agent.worker_process` with its settings, the file for the samples and its parent's process id as
arguments. It keeps a user's module between rounds, and exits when its standard input closes.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from moonfed.edge_client.data.source import Reader, open_source
from moonfed.edge_client.worker.heartbeat import Heartbeats
from moonfed.edge_client.worker.ipc import LogForwarder, ParentPipe, die_with, serve
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.edge_client.worker.shared_samples import write_samples
from moonfed.manifest import Manifest

log = logging.getLogger(__name__)


class SampleReader:
    """The device's samples, read again when they have changed."""

    def __init__(self, settings: WorkerSettings, file: int, parent: ParentPipe) -> None:
        """`file`: the descriptor for `write_samples`."""
        self._settings, self._file, self._parent = settings, file, parent
        self._reader: Reader | None = None
        self._counts = (0, 0)  # to train on, held out

    def execute(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Execute the agent's command, `check` or `read`; return its answer."""
        if kind == "read":
            return {"kind": "read", **self.read(**fields)}
        open_source(self._settings.data).check()  # for errors that would fail every round, such as missing data
        return {"kind": "ready"}

    def read(self, manifest_file: str) -> dict[str, Any]:
        """Write the samples for a bundle, unless they are already written; return their numbers."""
        manifest, heartbeats = Manifest.from_bytes(Path(manifest_file).read_bytes()), Heartbeats(self._parent)
        source = self._reader or Reader(open_source(self._settings.data), Path(self._settings.state, "cache"))
        self._reader = None  # after a failure the source is read again
        raw = source.read_if_changed(manifest.input, manifest.classes, heartbeats.work)
        if raw is not None:
            self._counts = write_samples(self._file, raw, manifest.input, self._settings.holdout)
            log.info("%d samples to train on, %d held out", *self._counts)
        self._reader = source
        return {
            "samples": self._counts[0],
            "held_out": self._counts[1],
            "changed": raw is not None,
            "other_work": heartbeats.other_work,
        }


def main() -> None:
    """Execute the agent's commands until its pipe closes."""
    _, settings, file, parent = sys.argv
    die_with(int(parent))
    pipe = ParentPipe()
    logging.basicConfig(handlers=[LogForwarder(pipe)], level=logging.INFO, format="%(message)s")
    serve(pipe, SampleReader(WorkerSettings(**json.loads(settings)), int(file), pipe).execute)


if __name__ == "__main__":
    main()
