"""The inference server's benchmark at its smallest, with real processes: every row is there, and measured."""

from __future__ import annotations

from benchmarks.serving import Extent, measure_serving

SMALLEST = Extent(small="cnn", large="cnn", turns=1, seconds=0.2, clients=(2,), batch=4, starts=1)
NAMES = {
    "cnn, batch 1, 2 clients: requests a second": "",
    "cnn, batch 1, 2 clients: over a server that infers nothing": "at least 0.85",
    "cnn, batch 1, 2 clients: over KServe's Python server": "at least 1.3",
    "cnn, batch 4: samples a second": "",
    "cnn, batch 4: over ONNX Runtime's own": "at least 0.95",
    "cnn, batch 1, 2 clients: dynamic batching over none, requests a second": "at least 1.1",
    "cnn, batch 1, 2 clients: dynamic batching over none, p99": "at most 1",
    "served answers' largest difference from ONNX Runtime's": "at most 0",
    "start with one model to ready": "at most 2",
}


def test_the_rows() -> None:
    figures = measure_serving(SMALLEST)
    assert {figure.name: figure.target for figure in reversed(figures)} == NAMES
    measured = [figure for figure in figures if "KServe" not in figure.name]
    assert all(figure.value is not None for figure in measured)
    assert next(figure.met for figure in measured if "difference" in figure.name)
