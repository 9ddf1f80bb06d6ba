"""The reader: runs the device's own data source, outside the sandbox, and hands samples to the trainer.

It is started by `agent.worker_process` with its settings, the file for the samples and its parent's process id as
arguments. It keeps a user's module between rounds, and exits when its standard input closes.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.bad_cells import UnusableData
from moonfed.data.open_source import open_source
from moonfed.data.source import Source
from moonfed.data.storage import default_room
from moonfed.edge_client.data.cache import Reader
from moonfed.edge_client.worker.heartbeat import Heartbeats
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.edge_client.worker.shared_samples import WrittenSamples, write_samples
from moonfed.errors import InvalidInput
from moonfed.sandbox.ipc import LogForwarder, ParentPipe, die_with, serve

_log = logging.getLogger(__name__)


class SampleReader:
    """The device's samples, read again when they have changed."""

    def __init__(self, settings: WorkerSettings, file: int, parent: ParentPipe) -> None:
        """`file`: the descriptor for `write_samples`."""
        self._settings = settings
        self._file = file
        self._parent = parent
        self._reader: Reader | None = None
        self._written = WrittenSamples(0, 0, (), {})

    def execute(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Execute the agent's command, `check` or `read`; return its answer."""
        if kind == "read":
            return {"kind": "read", **self.read(**fields)}
        self._source().check()  # for errors that would fail every round, such as missing data
        return {"kind": "ready"}

    def _source(self) -> Source:
        return open_source(self._settings.data, self._settings.target, ignored_folders=self._settings.ignored_folders)

    def read(self, spec: Mapping[str, Any], target: Mapping[str, Any], room: int | None = None) -> dict[str, Any]:
        """Write the samples in this form, unless they are already written; return their numbers.

        `room`: the bytes of memory for them; what needs more is mapped. None: a part of what is available.
        """
        form, heartbeats = InputSpec.from_document(spec), Heartbeats(self._parent)
        room = default_room() if room is None else room
        source = self._reader or Reader(self._source(), Path(self._settings.state, "cache"))
        self._reader = None  # after a failure the source is read again
        try:
            raw = source.read_if_changed(form, TargetSpec.from_document(target), heartbeats.work, room)
        except UnusableData as error:  # the coordinator is told the reason, which must not quote data
            _log.warning("%s", error)
            raise InvalidInput(error.public) from error
        if raw is not None:
            self._written = write_samples(self._file, raw, form, self._settings.holdout, room)
            mapped = "; they stay on disk, because they are large for this memory" if self._written.files else ""
            _log.info("%d samples to train on, %d held out%s", self._written.trained, self._written.held_out, mapped)
        self._reader = source
        return {
            "samples": self._written.trained,
            "held_out": self._written.held_out,
            "classes": self._written.classes,
            "files": self._written.files,
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
