"""TensorBoard's log directory, read back with its own reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from moonfed.coordinator.trackers.snapshot import Point, RunSnapshot
from moonfed.coordinator.trackers.tensorboard_tracker import open_tensorboard
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.errors import AlreadyExists
from tests.coordinator.trackers.conftest import EXPECTED, Export, files_in
from tests.support.refusals import refused


def read(directory: Path) -> EventAccumulator:
    found = EventAccumulator(str(directory))
    found.Reload()
    return found


def test_tensorboard_reads_scalars_texts_and_pictures(export: Export, tmp_path: Path) -> None:
    for _ in range(2):  # the second export replaces the first
        export("digits", "--to", "tensorboard", str(tmp_path), "--devices")
    found, tags = read(tmp_path / "digits"), read(tmp_path / "digits").Tags()
    for name in sorted({name for values in EXPECTED.values() for name in values}):
        messages = [(event.step, event.value) for event in found.Scalars(name)]
        assert messages == [
            (round_, pytest.approx(values[name])) for round_, values in EXPECTED.items() if name in values
        ]
    assert [event.value for event in found.Scalars("device/cam-1/counted")] == [1.0, 1.0, 1.0]
    times = [event.wall_time for event in found.Scalars("accuracy")]
    assert times == sorted(times)
    assert set(tags["images"]) == {"curves", "confusion-night"}
    assert all(event.encoded_image_string.startswith(b"\x89PNG") for event in found.Images("curves"))
    (table,) = found.Tensors("parameters")
    assert b"| training.hyperparameters.learning_rate | 0.1 |" in table.tensor_proto.string_val[0]
    (card,) = found.Tensors("release/digits-1/MODEL_CARD.md")
    assert card.tensor_proto.string_val[0] == b"float32 1 MODEL_CARD.md"
    (content,) = found.PluginTagToContent("hparams").values()
    session = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert session.hparams["settings.rounds"].number_value == 3
    assert (tmp_path / "digits/artifacts/release/digits-1/model.onnx").read_bytes() == b"float32 1 model.onnx"
    assert len([name for name in files_in(tmp_path) if "tfevents" in name]) == 1


def snapshot(identity: str, *points: Point) -> RunSnapshot:
    return RunSnapshot(run="digits", identity=identity, status="running", created=1.0, parameters={}, points=points)


def test_late_points_join_their_round_and_are_written_once(tmp_path: Path) -> None:
    late = Point(1, "accuracy", 0.5, 2.0)
    seconds = [Point(round_, "round_seconds", 1.0, 1.0 + round_) for round_ in (1, 2)]
    with open_tensorboard(TrackerOptions(target=str(tmp_path), name="digits", identity="a")) as tracker:
        for points in (seconds[:1], seconds, [*seconds, late], [*seconds, late]):
            tracker.write(snapshot("a", *points))
    found = read(tmp_path / "digits")
    assert [event.step for event in found.Scalars("round_seconds")] == [1, 2]
    assert [(event.step, event.value, event.wall_time) for event in found.Scalars("accuracy")] == [(1, 0.5, 2.0)]


def test_another_run_of_the_same_name_is_not_overwritten(tmp_path: Path) -> None:
    with open_tensorboard(TrackerOptions(target=str(tmp_path), name="digits", identity="a")) as tracker:
        tracker.write(snapshot("a"))
    options = TrackerOptions(target=str(tmp_path), name="digits", identity="b")
    with refused(AlreadyExists, "name"), open_tensorboard(options):
        pass
