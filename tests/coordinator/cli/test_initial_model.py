"""Initial weights from a run, a .safetensors file or an ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import split
from moonfed.coordinator.cli.initial_model import InitialModel, find_model
from moonfed.errors import InvalidInput, NotFound, SchemaMismatch
from tests.coordinator.conftest import Fleet, client, upload
from tests.support import coordinator
from tests.support.coordinator import SPECS, model_bytes
from tests.support.refusals import refused

MODEL = model_bytes(2.5)


def onnx_file(path: Path, names: tuple[str, ...], model_sha256: str) -> Path:
    """Write a graph with some of the model's tensors and the metadata of `moonfed-export onnx`."""
    values = split(np.full(coordinator.SIZE, 2.5, np.float32), SPECS)
    tensors = [numpy_helper.from_array(values[name], name) for name in names]
    graph = helper.make_model(helper.make_graph([], "g", [], [], initializer=tensors))
    onnx.helper.set_model_props(
        graph, {"moonfed.model_sha256": model_sha256, "moonfed.run": "digits", "moonfed.round": "8"}
    )
    path.write_bytes(graph.SerializeToString())
    return path


def found(fleet: Fleet, source: Path | str) -> InitialModel:
    return find_model(client(fleet), str(source), SPECS, fleet.tmp / "scratch")


def test_an_onnx_file_that_holds_the_weights_needs_no_stored_model(fleet: Fleet) -> None:
    sha256, names = ref_of_bytes(MODEL).sha256, tuple(spec.name for spec in SPECS)
    initial = found(fleet, onnx_file(fleet.tmp / "x.onnx", names, sha256))
    assert (initial.sha256, initial.file) == (sha256, fleet.tmp / "scratch")
    assert (fleet.tmp / "scratch").read_bytes() == MODEL


@pytest.mark.parametrize("names", [("head.bias",), tuple(spec.name for spec in SPECS)])
def test_an_onnx_file_whose_weights_were_changed_stands_for_the_stored_model(
    names: tuple[str, ...], fleet: Fleet
) -> None:
    """Such as one whose BatchNorm was folded, or a variant; its own weights are not those that it names."""
    stored = model_bytes(3.0)
    path = onnx_file(fleet.tmp / "x.onnx", names, ref_of_bytes(stored).sha256)
    with pytest.raises(InvalidInput, match=r"lacks the originals \(round 8"):
        found(fleet, path)
    upload(fleet, stored)
    assert found(fleet, path) == InitialModel(str(path), ref_of_bytes(stored).sha256)


def test_other_onnx_files_are_rejected(fleet: Fleet) -> None:
    with pytest.raises(InvalidInput, match="moonfed-export onnx` has written"):
        found(fleet, onnx_file(fleet.tmp / "x.onnx", (), ""))
    (fleet.tmp / "y.onnx").write_bytes(b"\xff" * 9)
    with pytest.raises(InvalidInput, match="not an ONNX model"):
        found(fleet, fleet.tmp / "y.onnx")


def test_a_run_stands_for_its_newest_model(fleet: Fleet) -> None:
    run = fleet.start("digits")
    assert found(fleet, "digits") == InitialModel("digits", run.model.sha256)
    with refused(NotFound, "from", "other"):
        found(fleet, "other")
    with refused(NotFound, "from", "other.safetensors"):
        found(fleet, "other.safetensors")


def test_a_file_of_another_model_is_rejected_before_anything_is_sent(tmp_path: Path, fleet: Fleet) -> None:
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(model_bytes(1.0, SPECS[:1]))
    with refused(SchemaMismatch, "from"):
        found(fleet, path)
