"""The inference server's benchmark at its smallest, with real processes: every figure is present and measured."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as triton

from benchmarks.load import inference_servers, no_op_server
from benchmarks.serving import ServingScale, measure_serving
from moonfed.serving import server
from tests.support.compiled import cached_bundle
from tests.support.kserve_environment import kserve_python

pytestmark = pytest.mark.slow

SMALLEST = ServingScale(small="cnn", large="cnn", turns=1, seconds=0.2, clients=(2,), batch=4, starts=1, epochs=1)
NAMES = {
    "cnn, batch 1, 2 clients: requests per second": "",
    "cnn, batch 1, 2 clients: moonfed / no-op server": "at least 0.85",
    "cnn, batch 1, 2 clients: inference-only / no-op server": "",
    "cnn, batch 1, 2 clients: moonfed / inference-only server": "",
    "cnn, batch 1, 2 clients: moonfed / KServe's Python server": "at least 1.3",
    "cnn, batch 4: samples per second": "",
    "cnn, batch 4: ONNX Runtime, one run on all cores": "",
    "cnn, batch 4: ONNX Runtime, one run per core": "",
    "cnn, batch 4: moonfed / ONNX Runtime": "at least 0.95",
    "cnn, batch 1, 2 clients: dynamic batching / none, requests per second": "at least 1.1",
    "cnn, batch 1, 2 clients: dynamic batching / none, p99": "at most 1",
    "cnn, batch 4: int8 / float32": "at least 3",
    "cnn, digits, 360 test samples: top-1 in float32": "",
    "cnn, digits, 360 test samples: top-1 lost to int8": "at most 0.5",
    "served answers' largest difference from ONNX Runtime's": "at most 0",
    "start with one model to ready": "at most 2",
}


@pytest.mark.usefixtures("forked_programs")
def test_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.serving.KSERVE_PYTHON", "")
    monkeypatch.setattr(inference_servers, "build_bundle", cached_bundle)
    figures = list(chain.from_iterable(measure_serving(SMALLEST)))
    assert {figure.name: figure.target for figure in reversed(figures)} == NAMES
    measured = [figure for figure in figures if "KServe" not in figure.name]
    assert all(figure.value is not None for figure in measured)
    assert next(figure.met for figure in measured if "difference" in figure.name)


def test_the_no_op_server_has_as_many_threads_as_moonfeds() -> None:
    assert no_op_server.THREADS == server.THREADS


def test_kserves_server_returns_onnx_runtimes_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference_servers, "KSERVE_PYTHON", str(kserve_python()))
    graph = inference_servers.write_graph("cnn", tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (3, *inference_servers.SHAPE), np.uint8)
    asked = triton.InferInput("inputs", list(pixels.shape), "UINT8")
    asked.set_data_from_numpy(pixels)
    with inference_servers.kserve(graph, "small") as address, triton.InferenceServerClient(address) as client:
        found = client.infer("small", [asked]).as_numpy("probabilities")
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(found, session.run(None, {"inputs": pixels})[0])
