"""Conversion to float16: what is stored in it, and what is computed in float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export.model_zoo import build_network
from moonfed.export.onnx_graph import export_graph
from moonfed.export.scoring import Predictor
from moonfed.release.float16 import to_float16
from moonfed.release.simplify import simplify

pytestmark = pytest.mark.slow


def test_float16_stores_float16_weights_and_accepts_large_raw_values() -> None:
    table = InputSpec(kind="features", shape=(6,))
    network = build_network(
        "mlp", table, class_target(3), mean=(3e6,), deviation=(1e6,), seed=1
    )  # beyond float16's 65,504
    graph = simplify(export_graph(network, table, model="mlp"))
    half = to_float16(graph)
    weights = {tensor.name: tensor.data_type for tensor in onnx.ModelProto.FromString(half).graph.initializer}
    assert weights["encoder.0.weight"] == TensorProto.FLOAT16
    assert weights["preprocessing.mean"] == TensorProto.FLOAT
    inputs = np.random.default_rng(0).normal(3e6, 1e6, (50, 6)).astype(np.float32)
    expected = Predictor(graph).predict(inputs)
    assert np.abs(expected - expected[0]).max() > 1e-3
    assert np.abs(Predictor(half).predict(inputs) - expected).max() < 1e-3


@pytest.mark.parametrize("layer", ["gru", "lstm"])
def test_float16_stores_the_weights_of_recurrent_layers_and_computes_them_in_float32(layer: str) -> None:
    series = InputSpec(kind="series", shape=(12, 3))
    network = build_network(layer, series, class_target(3), mean=(0.0,), deviation=(1.0,), projection=None, seed=1)
    graph = simplify(export_graph(network, series, model=layer))
    half = to_float16(graph)
    assert len(half) < 0.6 * len(graph)
    inputs = np.random.default_rng(0).normal(0, 3, (50, 12, 3)).astype(np.float32)
    expected = Predictor(graph).predict(inputs)
    spread = float(np.ptp(expected[:, 0]))
    assert spread > 0.05
    assert np.abs(Predictor(half).predict(inputs) - expected).max() < 0.05 * spread
