"""Tensors and metadata read from an ONNX graph without onnx."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from moonfed.errors import Corrupt, InvalidInput
from moonfed.plan.inspection.initialisers import FLOAT, read_graph

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3) / 7


def graph(*tensors: TensorProto, **metadata: str) -> bytes:
    made = helper.make_model(helper.make_graph([], "g", [], [], initializer=list(tensors)))
    onnx.helper.set_model_props(made, metadata)
    return made.SerializeToString()


def test_tensors_are_read_with_their_shape_and_type() -> None:
    raw = numpy_helper.from_array(VALUES, "raw")
    typed = helper.make_tensor("typed", TensorProto.FLOAT, (2, 3), VALUES.ravel().tolist())
    whole = numpy_helper.from_array(np.arange(3, dtype=np.int64), "whole")
    scalar = numpy_helper.from_array(np.array(4, np.float32), "scalar")
    found = read_graph(graph(raw, typed, whole, scalar)).initialisers
    for name in ("raw", "typed"):
        assert (found[name].shape, found[name].data_type) == ((2, 3), FLOAT)
        assert np.array_equal(np.frombuffer(found[name].data, "<f4").reshape(2, 3), VALUES)
    assert (found["whole"].data_type, found["whole"].shape) == (TensorProto.INT64, (3,))
    assert (found["scalar"].shape, np.frombuffer(found["scalar"].data, "<f4").tolist()) == ((), [4.0])


def test_metadata_are_read() -> None:
    assert read_graph(graph(**{"moonfed.run": "digits", "moonfed.note": ""})).metadata == {
        "moonfed.run": "digits",
        "moonfed.note": "",
    }
    assert read_graph(b"").initialisers == {}


def test_other_bytes_and_graphs_that_name_files_are_rejected() -> None:
    whole = graph(numpy_helper.from_array(VALUES, "raw"))
    with pytest.raises(Corrupt, match="x is not an ONNX model"):
        read_graph(b"\xff" * 20, "x")
    with pytest.raises(Corrupt):
        read_graph(whole[:-3])
    elsewhere = numpy_helper.from_array(VALUES, "raw")
    elsewhere.data_location = TensorProto.EXTERNAL
    with pytest.raises(InvalidInput, match="in another file"):
        read_graph(graph(elsewhere))
    named = numpy_helper.from_array(VALUES, "raw").SerializeToString().replace(b"raw", b"r\xffw")
    broken = onnx.ModelProto()
    broken.graph.initializer.append(TensorProto.FromString(numpy_helper.from_array(VALUES, "raw").SerializeToString()))
    with pytest.raises(Corrupt):
        read_graph(broken.SerializeToString().replace(TensorProto(name="raw").SerializeToString(), named[-5:]))
