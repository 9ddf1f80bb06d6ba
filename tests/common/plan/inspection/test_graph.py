from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from moonfed.errors import Corrupt, InvalidInput
from moonfed.plan.inspection.graph import require_self_contained
from tests.support.refusals import refused


def tensor(*, external: bool = False) -> TensorProto:
    made = numpy_helper.from_array(np.arange(3, dtype=np.float32), "weight")
    if external:
        made.ClearField("raw_data")
        made.data_location = TensorProto.EXTERNAL
        made.external_data.add(key="location", value="../operator/key.pem")
    return made


def graph(name: str = "g", **parts: object) -> onnx.GraphProto:
    return helper.make_graph([], name, [], [], **parts)  # type: ignore[arg-type]


def model(body: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(body)


def in_initialiser(bad: TensorProto) -> onnx.ModelProto:
    return model(graph(initializer=[bad]))


def in_constant(bad: TensorProto) -> onnx.ModelProto:
    return model(helper.make_graph([helper.make_node("Constant", [], ["x"], value=bad)], "g", [], []))


def in_branch(bad: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("If", ["c"], ["x"], then_branch=graph(initializer=[bad]), else_branch=graph())
    return model(helper.make_graph([node], "g", [], []))


def in_tensors(bad: TensorProto) -> onnx.ModelProto:
    return model(helper.make_graph([helper.make_node("Custom", [], ["x"], values=[bad, bad])], "g", [], []))


def in_sparse_initialiser(bad: TensorProto) -> onnx.ModelProto:
    found = model(graph())
    found.graph.sparse_initializer.add().values.CopyFrom(bad)
    return found


def in_sparse_indices(bad: TensorProto) -> onnx.ModelProto:
    found = model(graph())
    found.graph.sparse_initializer.add().indices.CopyFrom(bad)
    return found


def in_branches(bad: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Custom", [], ["x"], branches=[graph(), graph(initializer=[bad])])
    return model(helper.make_graph([node], "g", [], []))


def in_sparse_constant(bad: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["x"], sparse_value=onnx.SparseTensorProto(values=bad))
    return model(helper.make_graph([node], "g", [], []))


def in_sparse_constants(bad: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Custom", [], ["x"])
    node.attribute.add(name="values", type=onnx.AttributeProto.SPARSE_TENSORS).sparse_tensors.add().values.CopyFrom(bad)
    return model(helper.make_graph([node], "g", [], []))


def in_function(bad: TensorProto) -> onnx.ModelProto:
    found = model(graph())
    node = helper.make_node("Constant", [], ["x"], value=bad)
    found.functions.append(helper.make_function("d", "f", [], ["x"], [node], [helper.make_opsetid("", 20)]))
    return found


def in_default_of_function(bad: TensorProto) -> onnx.ModelProto:
    found = in_function(tensor())
    found.functions[0].attribute_proto.append(helper.make_attribute("default", bad))
    return found


def in_initialisation(bad: TensorProto) -> onnx.ModelProto:
    found = model(graph())
    found.training_info.add().initialization.CopyFrom(graph(initializer=[bad]))
    return found


def in_training(bad: TensorProto) -> onnx.ModelProto:
    found = model(graph())
    found.training_info.add().algorithm.CopyFrom(graph(initializer=[bad]))
    return found


PLACES = (
    in_initialiser,
    in_constant,
    in_branch,
    in_branches,
    in_tensors,
    in_sparse_initialiser,
    in_sparse_indices,
    in_sparse_constant,
    in_sparse_constants,
    in_function,
    in_default_of_function,
    in_initialisation,
    in_training,
)


@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_in_another_file_is_rejected_wherever_it_is(place: Callable[[TensorProto], onnx.ModelProto]) -> None:
    require_self_contained(place(tensor()).SerializeToString())
    with refused(InvalidInput, "external tensor", "weight"):
        require_self_contained(place(tensor(external=True)).SerializeToString())


def test_either_of_the_two_fields_is_enough() -> None:
    for field in ("data_location", "external_data"):
        bad = tensor(external=True)
        bad.ClearField(field)
        with refused(InvalidInput, "external tensor"):
            require_self_contained(in_initialiser(bad).SerializeToString())


@pytest.mark.parametrize(
    "content", [b"\xff", b"\x3a\x05\x00", b"\x0b", b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_damaged_bytes_are_one_sentence(content: bytes) -> None:
    with pytest.raises(Corrupt, match="the graph is not an ONNX model, or is damaged"):
        require_self_contained(content)


def test_nesting_does_not_exhaust_the_stack() -> None:
    message = b""
    for _ in range(3000):  # attributes with graphs of nodes with attributes
        for key in (0x2A, 0x0A, 0x32):
            message = bytes([key]) + _size(len(message)) + message
    require_self_contained(b"\x3a" + _size(len(message)) + message)


def _size(number: int) -> bytes:
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])
