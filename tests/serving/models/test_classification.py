from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest

from moonfed.bundle.target import NO_TARGET, TARGET_PARAMETER, TargetSpec, class_target
from moonfed.errors import InvalidInput
from moonfed.serving.models.classification import top_classes
from moonfed.serving.models.inference_request import Array, RequestedOutput
from tests.support.model_repositories import (
    BATCHED,
    INPUT,
    OUTPUT,
    ask,
    batch_of,
    directly,
    linear,
    put,
    serve,
    write_model,
)
from tests.support.refusals import refused


def test_the_best_classes_come_first_with_their_labels() -> None:
    values = np.array([[0.25, 0.5, 0.125], [1.0, -2.0, 1.0]], np.float32)
    assert top_classes(values, 2, ["cat", "dog"], batched=True).tolist() == [
        [b"0.500000:1:dog", b"0.250000:0:cat"],
        [b"1.000000:0:cat", b"1.000000:2"],
    ]
    assert top_classes(values[0], 9, [], batched=False).tolist() == [b"0.500000:1", b"0.250000:0", b"0.125000:2"]
    assert top_classes(np.array([[3, 200]], np.uint8), 1, [], batched=True).tolist() == [[b"200:1"]]


@pytest.mark.parametrize("array", [np.ones((1, 2), np.float16), np.ones((1, 2), np.bool_)])
def test_data_without_class_results_are_rejected(array: Array) -> None:
    with pytest.raises(
        InvalidInput, match=r"class result not available for output due to unsupported type '(FP16|BOOL)'"
    ):
        top_classes(array, 1, [], batched=True)


def test_a_served_model_classifies(tmp_path: Path) -> None:
    labelled = OUTPUT.replace("dims", 'label_filename: "labels.txt" dims')
    model = write_model(tmp_path, "linear", 1, linear(), BATCHED + INPUT + labelled)
    put(model / "labels.txt", b"red\ngreen\nblue\n")
    models = serve(tmp_path)
    inputs = batch_of(4)
    wanted = (RequestedOutput(name="probabilities", class_count=1),)
    found = models.infer(ask("linear", inputs, outputs=wanted)).outputs["probabilities"]
    (probabilities,) = directly(linear(), {"inputs": inputs})
    best = [int(row.argmax()) for row in probabilities]
    assert found.tolist() == [
        [f"{row[index]:.6f}:{index}:{['red', 'green', 'blue'][index]}".encode()]
        for row, index in zip(probabilities, best, strict=True)
    ]


def with_target(target: TargetSpec) -> str:
    """The configuration of a model whose output has the name that such a target's has."""
    text = target.to_text().replace('"', '\\"')
    parameters = f'parameters {{ key: "{TARGET_PARAMETER}" value: {{ string_value: "{text}" }} }}'
    return BATCHED + INPUT + OUTPUT.replace("probabilities", target.output) + parameters


def linear_with(output: str) -> bytes:
    model = onnx.load_from_string(linear())
    model.graph.node[-1].output[0] = model.graph.output[0].name = output
    return bytes(model.SerializeToString())


LABELS = TargetSpec(kind="labels", names=("cat", "dog", "cow"), shape=(3,))
OTHERS = [
    TargetSpec(kind="values", names=("price",), shape=(1,)),
    NO_TARGET,
    TargetSpec(kind="mask", names=("crop", "weed"), shape=(1, 3)),
    TargetSpec(kind="next", shape=(0,)),
]


@pytest.mark.parametrize("target", [class_target(3), LABELS, *OTHERS], ids=lambda target: target.kind)
def test_only_probabilities_of_classes_have_class_results(target: TargetSpec, tmp_path: Path) -> None:
    write_model(tmp_path, "linear", 1, linear_with(target.output), with_target(target))
    models = serve(tmp_path)
    request = ask("linear", batch_of(2), outputs=(RequestedOutput(name=target.output, class_count=1),))
    with refused(InvalidInput, "classification", 1) if target in OTHERS else nullcontext():
        assert models.infer(request).outputs[target.output].shape == (2, 1)
    plain = ask("linear", batch_of(2), outputs=(RequestedOutput(name=target.output),))
    assert models.infer(plain).outputs[target.output].shape == (2, 3)


def test_labels_that_are_missing_keep_a_model_from_loading(tmp_path: Path) -> None:
    labelled = OUTPUT.replace("dims", 'label_filename: "labels.txt" dims')
    write_model(tmp_path, "linear", 1, linear(), BATCHED + INPUT + labelled)
    models = serve(tmp_path, explicit=True)
    with pytest.raises(InvalidInput, match=r"label file labels.txt cannot be read"):
        models.load("linear")
