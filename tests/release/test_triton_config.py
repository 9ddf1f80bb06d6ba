"""Configurations of released models: generated from the graph, and an existing one checked against it."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest

from moonfed.bundle.manifest import INPUT_PARAMETER, InputSpec
from moonfed.bundle.target import NO_TARGET, TARGET_PARAMETER, TargetSpec, class_target
from moonfed.errors import InvalidInput
from moonfed.release.repository import ModelDirectory
from moonfed.release.triton_config import from_text, select_versions
from tests.support.pet_models import contents, graph, read_config, release
from tests.support.refusals import refused
from tests.support.tables import INPUT, TABLE


def test_a_model_with_a_fixed_batch_is_configured_without_batching(directory: ModelDirectory) -> None:
    directory.publish(1, release(graph(batch=2)))
    config = read_config(directory)
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert (list(config.input[0].dims), list(config.output[0].dims)) == ([2, 4, 5, 3], [2, 3])
    assert [sample.batch_size for sample in config.model_warmup] == [1]  # Triton's least


def test_a_model_with_unknown_dimensions_has_no_warm_up(directory: ModelDirectory) -> None:
    directory.publish(1, release(graph(side="height")))
    config = read_config(directory)
    assert list(config.input[0].dims) == [-1, 5, 3]
    assert not config.model_warmup


def test_without_class_names_there_are_no_labels(directory: ModelDirectory) -> None:
    directory.publish(1, release(graph(), classes=()))
    assert not (directory.path / "labels.txt").exists()
    assert not read_config(directory).output[0].label_filename


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name: "others"', "name in .* is 'others'; it must be its directory's, 'pets'"),
        ('backend: "python"', "backend in .* is 'python'; it must be 'onnxruntime'"),
        ('platform: "tensorrt_plan"', "backend in .* is 'tensorrt_plan'"),
        ('backend: "onnxruntime" default_model_filename: "m.onnx"', "names another model file than model.onnx"),
        (
            'backend: "onnxruntime" input { name: "image" data_type: TYPE_UINT8 dims: [4, 5, 3] }',
            "lacks the model's input",
        ),
        (
            'backend: "onnxruntime" output { name: "z" data_type: TYPE_FP32 dims: [3] }',
            "has the output 'z'; the model has",
        ),
        (
            'backend: "onnxruntime" max_batch_size: 4 output { name: "probabilities" data_type: TYPE_FP16 dims: [3] }',
            "data_type of output 'probabilities' in .* is TYPE_FP16; the model's is TYPE_FP32",
        ),
        (
            'backend: "onnxruntime" max_batch_size: 4 output { name: "probabilities" data_type: TYPE_FP32 dims: [10] }',
            r"dims of output 'probabilities' in .* are \[10\]; the model's are \[3\]",
        ),
        (
            'backend: "onnxruntime" output { name: "probabilities" data_type: TYPE_FP32 dims: [3] }',
            r"are \[3\]; the model's are \[-1, 3\]",
        ),
        ("name = pets", "is not a model configuration: 1:6"),
    ],
)
def test_a_configuration_that_does_not_fit_the_model_is_rejected(
    directory: ModelDirectory, text: str, message: str
) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / "config.pbtxt").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        directory.publish(1, release(graph()))
    assert set(contents(directory.path)) == {"config.pbtxt"}
    assert (directory.path / "config.pbtxt").read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        'platform: "onnxruntime_onnx"',  # everything else is completed by the server
        'backend: "onnxruntime" max_batch_size: 4 input { name: "inputs" data_type: TYPE_UINT8 dims: [-1, -1, 3] }',
        'backend: "onnxruntime" input { name: "inputs" data_type: TYPE_UINT8 dims: [1, 4, 5, 3] }',
        'backend: "onnxruntime" max_batch_size: 4 '
        'input { name: "inputs" data_type: TYPE_UINT8 dims: [60] reshape { shape: [4, 5, 3] } }',
    ],
)
def test_a_configuration_that_fits_is_not_changed(directory: ModelDirectory, text: str) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / "config.pbtxt").write_text(text)
    assert directory.publish(1, release(graph())).kept_config
    assert (directory.path / "config.pbtxt").read_text() == text


def test_batching_a_model_with_a_fixed_batch_is_rejected(directory: ModelDirectory) -> None:
    directory.path.mkdir(parents=True)
    (directory.path / "config.pbtxt").write_text('backend: "onnxruntime" max_batch_size: 4')
    with refused(InvalidInput, "max_batch_size", 4):
        directory.publish(1, release(graph(batch=2)))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", [5]),
        ("version_policy { latest { num_versions: 2 } }", [3, 5]),
        ("version_policy { latest { num_versions: 9 } }", [1, 3, 5]),
        ("version_policy { all {} }", [1, 3, 5]),
        ("version_policy { specific { versions: [1, 4, 5] } }", [1, 5]),
    ],
)
def test_the_version_policy_selects_as_triton_documents(policy: str, expected: list[int]) -> None:
    assert select_versions(from_text(policy, "config.pbtxt"), [1, 3, 5]) == expected


def described(text: str, key: str = INPUT_PARAMETER) -> bytes:
    """Return the model with a description of its input or target, as `moonfed-export onnx` writes it."""
    model = onnx.ModelProto.FromString(graph())
    onnx.helper.set_model_props(model, {key: text})
    return model.SerializeToString(deterministic=True)


def test_the_columns_of_tables_are_described_for_clients(directory: ModelDirectory) -> None:
    directory.publish(1, release(described(INPUT.to_text())))
    assert read_config(directory).parameters[INPUT_PARAMETER].string_value == INPUT.to_text()
    directory.publish(2, release(described(INPUT.to_text())))
    other = replace(TABLE, columns=TABLE.columns[::-1])
    with refused(InvalidInput, "columns"):
        directory.publish(3, release(described(replace(INPUT, table=other).to_text())))
    with refused(InvalidInput, "columns"):
        directory.publish(3, release(graph()))
    with refused(InvalidInput, "input"):
        release(described("{}"))


def test_other_inputs_are_not_described(directory: ModelDirectory) -> None:
    directory.publish(1, release(described(InputSpec(kind="image", shape=(4, 5, 3)).to_text())))
    assert not read_config(directory).parameters


@pytest.mark.parametrize(
    "spec",
    [InputSpec(kind="series", shape=(9, 2)), InputSpec(kind="tokens", shape=(9,), vocabulary=("", "a"))],
    ids=lambda spec: spec.kind,
)
def test_series_and_tokens_are_described_for_clients(spec: InputSpec, directory: ModelDirectory) -> None:
    directory.publish(1, release(described(spec.to_text())))
    assert read_config(directory).parameters[INPUT_PARAMETER].string_value == spec.to_text()


PRICE = TargetSpec(kind="values", names=("price",), shape=(1,), units=("EUR",))
TARGETS = {
    "values": PRICE,
    "scores": NO_TARGET,
    "labels": TargetSpec(kind="labels", names=("cat", "dog"), shape=(2,)),
    "masks": TargetSpec(kind="mask", names=("crop", "weed"), shape=(2, 2)),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_targets_other_than_classes_are_described_for_clients(target: TargetSpec, directory: ModelDirectory) -> None:
    directory.publish(1, release(described(target.to_text(), TARGET_PARAMETER)))
    assert read_config(directory).parameters[TARGET_PARAMETER].string_value == target.to_text()
    other = TargetSpec(kind="values", names=("rent",), shape=(1,))
    with refused(InvalidInput, "targets"):
        directory.publish(2, release(described(other.to_text(), TARGET_PARAMETER)))


def test_the_scale_of_values_is_left_to_the_model(directory: ModelDirectory) -> None:
    for version, mean in enumerate((300.0, 310.0), start=1):
        text = replace(PRICE, mean=(mean,), deviation=(2.0,)).to_text()
        directory.publish(version, release(described(text, TARGET_PARAMETER)))
    assert read_config(directory).parameters[TARGET_PARAMETER].string_value == PRICE.to_text()


def test_classes_are_described_by_their_labels_alone(directory: ModelDirectory) -> None:
    directory.publish(1, release(described(class_target(3).to_text(), TARGET_PARAMETER)))
    assert not read_config(directory).parameters
