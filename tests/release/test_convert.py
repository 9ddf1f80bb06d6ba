"""Conversion of graphs: quantised and optimised alike in every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from moonfed.bundle.target import class_target
from moonfed.export.model_zoo import build_network
from moonfed.export.onnx_graph import export_graph
from moonfed.release.convert import to_int8
from moonfed.release.float16 import to_float16
from moonfed.release.model_file import CheckedModel
from moonfed.release.simplify import simplify
from tests.export.conftest import SMALL_IMAGE
from tests.support.model_repositories import directly, graph
from tests.support.trained_model import Trained

pytestmark = pytest.mark.slow


def test_a_residual_network_is_quantised_completely() -> None:
    network = build_network(
        "tests.support.residual_network:small_resnet",
        SMALL_IMAGE,
        class_target(10),
        mean=(0.5,),
        deviation=(0.25,),
        seed=3,
    )
    residual = simplify(export_graph(network, SMALL_IMAGE, model="tested"))
    inputs = np.random.default_rng(0).integers(0, 256, (64, *SMALL_IMAGE.shape), dtype=np.uint8)
    proto = onnx.ModelProto.FromString(to_int8(residual, inputs))
    makers = {output: node for node in proto.graph.node for output in node.output}
    weighted = [node for node in proto.graph.node if node.op_type in ("Conv", "Gemm")]
    sums = [node for node in proto.graph.node if node.op_type == "Add" and "shift" not in str(node.input)]
    assert {makers[node.input[0]].op_type for node in weighted} == {"DequantizeLinear"}
    # all but the sum of preprocessing
    assert [makers[node.input[0]].op_type for node in sums].count("DequantizeLinear") >= len(sums) - 1
    assert len(sums) > 1


def layers(names: list[str], output: str, scale: float = 1.0, shift: float = 0.0) -> bytes:
    """Return layers of 6 that share a bias `b`, by the names of their results; the last one is scaled and shifted."""
    generator = np.random.default_rng(1)
    values = {f"w{place}": generator.normal(0, 0.4, (6, 6)) for place in range(len(names))}
    values |= {"b": generator.normal(0, 0.4, 6), "scale": np.array(scale), "shift": np.array(shift)}
    nodes = []
    for place, (given, name) in enumerate(zip(["inputs", *names[:-1]], names, strict=True)):
        nodes.append(helper.make_node("Gemm", [given, f"w{place}", "b"], [name], name=f"gemm{place}"))
    nodes.append(helper.make_node("Mul", [names[-1], "scale"], ["scaled"], name="mul"))
    nodes.append(helper.make_node("Add", ["scaled", "shift"], [output], name="add"))
    first, last = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 6])] for name in ("inputs", output))
    return graph(nodes, first, last, [numpy_helper.from_array(v.astype(np.float32), k) for k, v in values.items()])


@pytest.mark.parametrize("deviation", [80.0, 1e5, 1e8])
@pytest.mark.parametrize("variant", ["float16", "int8"])
def test_values_are_scaled_to_their_units_in_float32(variant: str, deviation: float) -> None:
    inputs = np.random.default_rng(2).normal(size=(256, 6)).astype(np.float32)
    model = layers(["x", "y", "z"], "values", deviation, 3 * deviation)
    made = to_float16(model) if variant == "float16" else to_int8(model, inputs)
    (expected,), (found,) = directly(model, {"inputs": inputs}), directly(made, {"inputs": inputs})
    largest = np.abs(expected - 3 * deviation).max()
    assert np.abs(found - expected).max() < (0.005 if variant == "float16" else 0.05) * largest


@pytest.mark.parametrize("names", [["x", "y", "z"], ["b1", "b2", "b3"], ["b2", "b11", "b10"]], ids="-".join)
def test_int8_is_right_whatever_tensors_are_called(names: list[str]) -> None:
    """The quantiser calls copies of the bias b1, b2 and so on."""
    inputs = np.random.default_rng(3).normal(size=(256, 6)).astype(np.float32)
    model = layers(names, "values")
    (expected,), (found,) = directly(model, {"inputs": inputs}), directly(to_int8(model, inputs), {"inputs": inputs})
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


CONVERT = """
import hashlib, sys
from pathlib import Path
import numpy as np
from moonfed.release.convert import optimise, to_int8
from moonfed.release.float16 import to_float16

graph = Path(sys.argv[1]).read_bytes()
inputs = np.load(sys.argv[2])["inputs"]
for made in (to_float16(graph), to_int8(graph, inputs), optimise(graph), optimise(to_int8(graph, inputs))):
    print(hashlib.sha256(made).hexdigest())
assert "torch" not in sys.modules
"""


def test_two_conversions_in_two_processes_are_byte_identical(
    trained: Trained, checked: CheckedModel, tmp_path: Path
) -> None:
    """Conversion also imports no torch."""
    (tmp_path / "model.onnx").write_bytes(checked.graph)
    outputs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", CONVERT, str(tmp_path / "model.onnx"), str(trained.calibration_file)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "proto:."},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout.split())
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0])) == 4
