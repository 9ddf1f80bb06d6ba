"""Conversion of graphs: quantised and optimised alike in every process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from moonfed.bundle.target import class_target
from moonfed.export.model_zoo import build_network
from moonfed.export.onnx_graph import export_graph
from moonfed.release.convert import to_int8
from moonfed.release.model_file import CheckedModel
from moonfed.release.simplify import simplify
from tests.export.conftest import SMALL_IMAGE
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
    graph = simplify(export_graph(network, SMALL_IMAGE, model="tested"))
    inputs = np.random.default_rng(0).integers(0, 256, (64, *SMALL_IMAGE.shape), dtype=np.uint8)
    proto = onnx.ModelProto.FromString(to_int8(graph, inputs))
    makers = {output: node for node in proto.graph.node for output in node.output}
    weighted = [node for node in proto.graph.node if node.op_type in ("Conv", "Gemm")]
    sums = [node for node in proto.graph.node if node.op_type == "Add" and "shift" not in str(node.input)]
    assert {makers[node.input[0]].op_type for node in weighted} == {"DequantizeLinear"}
    # all but the sum of preprocessing
    assert [makers[node.input[0]].op_type for node in sums].count("DequantizeLinear") >= len(sums) - 1
    assert len(sums) > 1


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
