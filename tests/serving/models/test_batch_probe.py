"""A model is batched only if that changes no answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from moonfed.errors import MoonfedError
from tests.support.model_repositories import (
    INPUT,
    OUTPUT,
    ask,
    batch_of,
    graph,
    identity,
    linear,
    serve,
    summing,
    write_model,
)

FLOAT = TensorProto.FLOAT


def _graph(*nodes: tuple[str, list[str], str]) -> bytes:
    """Build probabilities [N, 4] of inputs [N, 4]; "axis" and "first" are 0, as a list and as a number."""
    made = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes]
    constants = [
        numpy_helper.from_array(np.array([0], np.int64), "axis"),
        numpy_helper.from_array(np.array(0, np.int64), "first"),
    ]
    inputs = [helper.make_tensor_value_info("inputs", FLOAT, ["N", 4])]
    return graph(made, inputs, [helper.make_tensor_value_info("probabilities", FLOAT, ["N", 4])], constants)


def over_time() -> bytes:
    return _graph(("CumSum", ["inputs", "first"], "probabilities"))


def over_the_batch() -> bytes:
    return _graph(("ReduceMean", ["inputs", "axis"], "mean"), ("Sub", ["inputs", "mean"], "probabilities"))


def softmax_over_the_batch() -> bytes:
    nodes = [helper.make_node("Softmax", ["inputs"], ["probabilities"], axis=0)]
    inputs = [helper.make_tensor_value_info("inputs", FLOAT, ["N", 4])]
    return graph(nodes, inputs, [helper.make_tensor_value_info("probabilities", FLOAT, ["N", 4])])


def some_rows() -> bytes:
    """Return only the rows whose first number is above a half, as detectors do."""
    nodes = [
        helper.make_node("Gather", ["inputs", "first"], ["numbers"], axis=1),
        helper.make_node("Greater", ["numbers", "half"], ["above"]),
        helper.make_node("Compress", ["inputs", "above"], ["probabilities"], axis=0),
    ]
    constants = [
        numpy_helper.from_array(np.array(0, np.int64), "first"),
        numpy_helper.from_array(np.array(0.5, np.float32), "half"),
    ]
    inputs = [helper.make_tensor_value_info("inputs", FLOAT, ["N", 4])]
    return graph(nodes, inputs, [helper.make_tensor_value_info("probabilities", FLOAT, ["M", 4])], constants)


def served(repository: Path, content: bytes, config: str = "") -> int:
    """Return the max_batch_size of a model that is served under this config."""
    write_model(repository, "m", 1, content, config)
    models = serve(repository, explicit=True)
    models.load("m")
    return int(models.config("m").max_batch_size)


@pytest.mark.parametrize("content", [over_time, over_the_batch, softmax_over_the_batch, some_rows])
def test_a_model_whose_rows_depend_on_each_other_is_not_batched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: Callable[[], bytes]
) -> None:
    with caplog.at_level(logging.INFO):
        assert served(tmp_path, content()) == 0
    assert (
        "model m is not batched: output 'probabilities' of two samples differs from that of each alone" in caplog.text
    )


@pytest.mark.parametrize(
    "content",
    [linear(), summing(), identity(), identity(FLOAT), identity(TensorProto.FLOAT16), identity(TensorProto.INT64)],
    ids=["linear", "free-length", "strings", "float32", "float16", "int64"],
)
def test_a_model_of_independent_rows_is_batched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    with caplog.at_level(logging.INFO):
        assert served(tmp_path, content) == 4
    assert "model m is batched" in caplog.text


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ("", 4),
        ("max_batch_size: 0", 0),
        ("max_batch_size : 00 # off", 0),
        ("# max_batch_size: 0", 4),
        ("max_batch_size: 2", 2),
        ("\ufeffmax_batch_size: 0", 0),
    ],
    ids=["none", "zero", "zeros", "comment", "two", "byte-order-mark"],
)
def test_zero_means_that_requests_never_run_together(tmp_path: Path, config: str, size: int) -> None:
    assert served(tmp_path, linear(), config) == size


@pytest.mark.parametrize(
    ("batch", "config", "loads"),
    [
        (1, "max_batch_size: 8 dynamic_batching { }", False),
        (3, "max_batch_size: 3", False),
        (1, "max_batch_size: 1", True),
        (1, "max_batch_size: 0", True),
        (1, "", True),
    ],
    ids=["one-of-eight", "three", "one", "zero", "none"],
)
def test_a_graph_with_a_fixed_batch_cannot_be_batched(tmp_path: Path, batch: int, config: str, loads: bool) -> None:
    listed = f"{INPUT}{OUTPUT}" if config and not config.endswith("0") else ""  # without the batch
    written = f"{config} {listed}"
    if loads:
        assert served(tmp_path, linear(batch=batch), written) == int(config.endswith("1"))
        return
    with pytest.raises(MoonfedError, match=rf"first dimension is {batch}, so it cannot be batched; max_batch_size is"):
        served(tmp_path, linear(batch=batch), written)


def test_answers_under_load_are_those_of_each_request_alone(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 1, over_the_batch(), "")
    models = serve(tmp_path, explicit=True)
    models.load("m")
    samples = [batch_of(3, seed=seed) for seed in range(60)]
    with ThreadPoolExecutor(12) as clients:
        found = list(clients.map(lambda rows: models.infer(ask("m", rows)).outputs["probabilities"], samples))
    assert all(np.allclose(got, rows - rows.mean(axis=0), atol=1e-5) for got, rows in zip(found, samples, strict=True))
