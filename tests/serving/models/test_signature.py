from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import TensorProto

from moonfed.errors import InvalidInput
from moonfed.serving.models.inference_request import Array, InferRequest, RequestedOutput
from moonfed.serving.models.manager import ModelManager
from tests.support.model_repositories import BATCHED, identity, serve, summing, write_model

ASKED = r"^\[request id: 7\] "


def ones(*shape: int, dtype: type = np.float32) -> Array:
    return np.ones(shape, dtype)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> ModelManager:
    repository = tmp_path_factory.mktemp("repository")
    write_model(repository, "sum", 1, summing(), BATCHED)
    tensor = '{ name: "%s" data_type: TYPE_INT64 dims: [-1, 2] }'
    dims = f"input {tensor % 'x'} output {tensor % 'y'}"
    write_model(repository, "whole", 1, identity(TensorProto.INT64), dims)
    return serve(repository)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (
            {"a": ones(1, 2)},
            ASKED + r"expected 2 inputs but got 1 inputs for model 'sum'. Got input\(s\) \['a'\], but missing required "
            r"input\(s\) \['b'\]. Please provide all required input\(s\).$",
        ),
        (
            {},
            ASKED + r"expected 2 inputs but got 0 inputs for model 'sum'. Got input.* \[\], but missing .* \['a','b'\]",
        ),
        ({"a": ones(1, 2), "c": ones(1, 2)}, "^unexpected inference input 'c' for model 'sum'$"),
        (
            {"a": ones(1, 2), "b": ones(1, 2), "c": ones(1, 2)},
            ASKED + r"expected 2 inputs but got 3 inputs for model 'sum'. Got input\(s\) \['a','b','c'\]",
        ),
        (
            {"a": ones(1, 2), "b": ones()},
            ASKED + "input 'b' has no shape but model requires batch dimension for 'sum'$",
        ),
        ({"a": ones(2, 2), "b": ones(1, 2)}, ASKED + "input 'b' batch size does not match other inputs for 'sum'$"),
        ({"a": ones(9, 2), "b": ones(9, 2)}, ASKED + "inference request batch-size must be <= 8 for 'sum'$"),
        (
            {"a": ones(0, 1), "b": ones(0, 2)},
            ASKED + ".* mismatch for input 'a' for model 'sum'. Expected 4, got 0 NOTE: the batch is empty; its "
            "size must be from 1 to 8.$",
        ),
        (
            {"a": ones(1, 2, dtype=np.int8), "b": ones(1, 2)},
            ASKED + "inference input 'a' data-type is 'INT8', but model 'sum' expects 'FP32'$",
        ),
        (
            {"a": ones(1, 2), "b": ones(1, 3)},
            ASKED + r"unexpected shape for input 'b' for model 'sum'. Expected \[-1,2\], got \[1,3\]. NOTE: ",
        ),
        ({"a": ones(1, 2, 1), "b": ones(1, 2)}, ASKED + r".*'a' for model 'sum'. Expected \[-1,-1\], got \[1,2,1\]"),
    ],
)
def test_inputs_that_do_not_fit_are_rejected_in_tritons_words(
    models: ModelManager, inputs: Mapping[str, Array], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        models.infer(InferRequest(model="sum", id="7", inputs=inputs))


def test_without_batching_the_shape_is_complete(models: ModelManager) -> None:
    x = np.arange(40).reshape(20, 2)
    assert np.array_equal(models.infer(InferRequest(model="whole", inputs={"x": x})).outputs["y"], x)
    with pytest.raises(InvalidInput, match=r"Expected \[-1,2\], got \[2\]. $"):
        models.infer(InferRequest(model="whole", inputs={"x": x[0]}))


def test_an_output_that_is_unknown_is_rejected(models: ModelManager) -> None:
    inputs = {"a": ones(1, 2), "b": ones(1, 2)}
    with pytest.raises(InvalidInput, match=r"^unexpected inference output 'product' for model 'sum'$"):
        models.infer(InferRequest(model="sum", inputs=inputs, outputs=(RequestedOutput(name="product"),)))


def test_an_output_cannot_be_requested_many_times(models: ModelManager) -> None:
    """Each would be a copy of its own."""
    name = next(iter(models.infer(InferRequest(model="sum", inputs={"a": ones(1, 2), "b": ones(1, 2)})).outputs))
    request = InferRequest(
        model="sum", inputs={"a": ones(1, 2), "b": ones(1, 2)}, outputs=(RequestedOutput(name=name),) * 100
    )
    with pytest.raises(InvalidInput, match=r"^100 inference outputs are requested of model 'sum', which has "):
        models.infer(request)


def test_rejected_requests_are_counted(models: ModelManager) -> None:
    before = models.statistics("sum")[0].fail.count
    with pytest.raises(InvalidInput):
        models.infer(InferRequest(model="sum", inputs={}))
    counted = models.statistics("sum")[0]
    assert (counted.fail.count, counted.failures["OTHER"]) == (before + 1, before + 1)


def test_metadata_describe_inputs_and_outputs(models: ModelManager) -> None:
    found = models.metadata("sum")
    assert (found.name, found.versions, found.platform) == ("sum", ("1",), "onnxruntime_onnx")
    assert [(each.name, each.datatype, each.shape) for each in (*found.inputs, *found.outputs)] == [
        ("a", "FP32", (-1, -1)),
        ("b", "FP32", (-1, 2)),
        ("total", "FP32", (-1, 2)),
        ("difference", "FP32", (-1, 2)),
    ]
