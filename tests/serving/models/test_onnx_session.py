"""Sessions of ONNX Runtime on small graphs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from moonfed.errors import InvalidInput, MoonfedError
from moonfed.models.onnx_runtime import SessionSettings
from moonfed.serving.models.inference_request import TensorMetadata
from moonfed.serving.models.onnx_session import OnnxSession, run_session
from moonfed.serving.models.tensor_codec import bytes_array
from tests.support.model_repositories import batch_of, directly, graph, identity, linear, summing

CPU = SessionSettings()


def test_a_session_describes_its_tensors() -> None:
    session = OnnxSession(linear(), CPU)
    assert session.inputs == (TensorMetadata(name="inputs", datatype="FP32", shape=(-1, 4)),)
    assert session.outputs == (TensorMetadata(name="probabilities", datatype="FP32", shape=(-1, 3)),)
    assert OnnxSession(linear(batch=2), CPU).inputs[0].shape == (2, 4)


def test_runs_return_the_named_outputs_in_their_order() -> None:
    session = OnnxSession(summing(), CPU)
    feeds = {"a": np.ones((1, 2), np.float32), "b": np.full((1, 2), 5, np.float32)}
    assert [found.tolist() for found in run_session(session, ["difference", "total"], feeds)] == [
        [[-4.0, -4.0]],
        [[6.0, 6.0]],
    ]
    (only,) = run_session(OnnxSession(linear(), CPU), ["probabilities"], {"inputs": batch_of(3)})
    assert only.tobytes() == directly(linear(), {"inputs": batch_of(3)})[0].tobytes()


def test_a_run_that_fails_is_one_line_without_ours() -> None:
    session = OnnxSession(summing(), CPU)
    feeds = {"a": np.ones((1, 3), np.float32), "b": np.ones((1, 2), np.float32)}
    with pytest.raises(MoonfedError, match=r"^onnx runtime error: ") as error:
        run_session(session, ["total"], feeds)
    assert "\n" not in str(error.value)
    assert type(error.value) is MoonfedError


def test_strings_are_bytes_for_clients() -> None:
    session = OnnxSession(identity(), CPU)
    assert session.inputs[0].datatype == "BYTES"
    texts = bytes_array([b"caf\xc3\xa9", b""]).reshape(1, 2)
    (found,) = run_session(session, ["y"], {"x": texts})
    assert found.tolist() == texts.tolist()
    with pytest.raises(InvalidInput, match="input 'x' is not UTF-8"):
        run_session(session, ["y"], {"x": bytes_array([b"\xff", b""]).reshape(1, 2)})


@pytest.mark.parametrize("content", [b"", b"not an ONNX file", linear()[:-20]], ids=["nothing", "text", "half"])
def test_a_graph_that_cannot_be_read_is_an_error(content: bytes) -> None:
    with pytest.raises(MoonfedError):
        OnnxSession(content, CPU)


def test_unnamed_lengths_are_any_length() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    tensors = [helper.make_tensor_value_info(name, TensorProto.INT64, [None, "W", 2]) for name in ("x", "y")]
    assert OnnxSession(graph(nodes, tensors[:1], tensors[1:]), CPU).inputs[0].shape == (-1, -1, 2)


def test_an_output_that_is_no_tensor_is_named_with_the_remedy() -> None:
    """As scikit-learn's classifiers have one unless they are converted with zipmap=False."""
    zipped = helper.make_node("ZipMap", ["x"], ["scores"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    )
    made = helper.make_graph(
        [zipped],
        "tested",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_value_info("scores", kind)],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    content = helper.make_model(made, opset_imports=opsets, ir_version=10).SerializeToString()
    with pytest.raises(InvalidInput, match=r"'scores' of the graph has ONNX type 'seq\(map.*zipmap=False"):
        OnnxSession(content, SessionSettings())
