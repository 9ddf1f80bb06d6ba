"""Export to TensorBoard: event files, which this module writes without TensorFlow."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.text import metadata as text
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from moonfed.coordinator.trackers.snapshot import RunSnapshot, Written
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.errors import AlreadyExists

ARTIFACTS = "artifacts"  # the directory of files, next to the events
PREFIX, SUFFIX = "events.out.tfevents.", ".moonfed-"


@contextmanager
def open_tensorboard(options: TrackerOptions) -> Iterator[TensorBoardTracker]:
    """Open the run's directory in a log directory; raise AlreadyExists if it holds another run."""
    tracker = TensorBoardTracker(Path(options.target) / options.name, options.identity)
    try:
        yield tracker
    finally:
        tracker.close()


class TensorBoardTracker:
    """A run in a log directory. A new export replaces the event files of an earlier one."""

    def __init__(self, directory: Path, identity: str) -> None:
        self._directory, self._written = directory, Written()
        self._previous = sorted(directory.glob(f"{PREFIX}*{SUFFIX}*"))
        for file in self._previous:
            if not file.name.endswith(SUFFIX + identity):
                raise AlreadyExists(
                    f"{directory} holds another run of this name; give a --name of its own",
                    field="name",
                    value=directory,
                )
        self._writer = EventFileWriter(str(directory), filename_suffix=SUFFIX + identity)
        self._texts: dict[str, str] = {}

    @property
    def place(self) -> str:
        """The directory."""
        return str(self._directory)

    def write(self, snapshot: RunSnapshot) -> None:
        """Write new points, and texts, pictures and files."""
        self._write_parameters(snapshot)
        for point in self._written.missing(snapshot):
            value = Summary.Value(tag=point.name, simple_value=point.value)
            self._write(Summary(value=[value]), point.time, point.round)
            self._written.add(point)
        newest = max((point.round for point in snapshot.points), default=0)
        for name, path in snapshot.pictures.items():
            self._write_picture(name, path, newest)
        self._write_files(snapshot.files, newest)
        self._writer.flush()
        for file in self._previous:
            file.unlink(missing_ok=True)
        self._previous = []

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

    def _write(self, summary: Summary, seconds: float, step: int) -> None:
        self._writer.add_event(Event(wall_time=seconds, step=step, summary=summary))

    def _write_parameters(self, snapshot: RunSnapshot) -> None:
        rows = [f"| {name} | {value} |" for name, value in snapshot.parameters.items()]
        table = "\n".join(["| parameter | value |", "| --- | --- |", *rows])
        if "parameters" not in self._texts:
            summary = hparams.hparams_pb(dict(snapshot.parameters), snapshot.identity, snapshot.created)
            self._write(summary, snapshot.created, 0)
        self._write_text("parameters", table, 0)

    def _write_text(self, tag: str, content: str, step: int) -> None:
        if self._texts.get(tag) == content:
            return
        tensor = TensorProto(dtype=DT_STRING, string_val=[content.encode()])
        metadata = text.create_summary_metadata(display_name=tag, description="")
        self._write(Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=metadata)]), time.time(), step)
        self._texts[tag] = content

    def _write_picture(self, tag: str, path: Path, step: int) -> None:
        content = path.read_bytes()
        width, height = struct.unpack(">II", content[16:24])  # PNG
        image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=content)
        self._write(Summary(value=[Summary.Value(tag=tag, image=image)]), time.time(), step)

    def _write_files(self, files: Mapping[str, Path], step: int) -> None:
        for name, path in files.items():
            target = self._directory / ARTIFACTS / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            if name.endswith(".md"):
                self._write_text(name, path.read_text(), step)
