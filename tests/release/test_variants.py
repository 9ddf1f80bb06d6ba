"""Variants of a trained model: results, accuracy and metadata."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

from moonfed.bundle.manifest import InputSpec
from moonfed.cli.program import app
from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput, NotFound
from moonfed.export.binding import read_metadata
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.release.calibration import Calibration, read_calibration
from moonfed.release.convert import to_int8
from moonfed.release.float16 import to_float16
from moonfed.release.model_file import CheckedModel, check_model
from moonfed.release.variants import Variant, VariantOptions, make_variants
from tests.support.control_service import Control
from tests.support.refusals import refused
from tests.support.trained_model import RECIPE, Trained
from tests.support.variant_exports import exported

pytestmark = pytest.mark.slow

DATA_SHA256 = "d" * 64


def predicted(graph: bytes, inputs: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Evaluate with ONNX Runtime directly."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"inputs": inputs})
    return np.asarray(probabilities)


def calibration(trained: Trained) -> npt.NDArray[np.uint8]:
    with np.load(trained.calibration_file) as archive:
        return np.asarray(archive["inputs"])


@pytest.fixture(scope="module")
def variants(trained: Trained, checked: CheckedModel) -> Mapping[str, Variant]:
    found = read_calibration(NpzSource(trained.calibration_file), RECIPE.input, trained.test.inputs, DATA_SHA256)
    options = VariantOptions(names=("float16", "int8"), optimised=True, calibration=found, keep="smaller")
    return {variant.name: variant for variant in make_variants(checked.graph, trained.test, DATA_SHA256, options)}


def test_an_optimised_copy_has_fewer_and_fused_operators(variants: Mapping[str, Variant]) -> None:
    plain, optimised = (
        onnx.ModelProto.FromString(variants[name].graph).graph.node for name in ("float32", "float32-optimised")
    )
    assert len(optimised) < len(plain)
    assert "com.microsoft" in {node.domain for node in optimised} - {node.domain for node in plain}


def test_quantising_does_not_disable_warnings(variants: Mapping[str, Variant]) -> None:
    assert "int8" in variants
    assert logging.getLogger().isEnabledFor(logging.WARNING)


def test_every_variant_is_made_and_nearly_as_accurate(variants: Mapping[str, Variant], trained: Trained) -> None:
    bases = ["float32", "float16", "int8"]
    assert list(variants) == [*bases, *(f"{base}-optimised" for base in bases)]
    inputs, labels = trained.test.inputs, trained.test.labels
    reference = predicted(variants["float32"].graph, inputs)
    assert (reference.argmax(axis=1) == labels).mean() > 0.9  # else nothing is shown by what follows
    for variant in variants.values():
        probabilities = predicted(variant.graph, inputs)
        accuracy = float((probabilities.argmax(axis=1) == labels).mean())
        loss = -float(np.log(probabilities[np.arange(len(labels)), labels].astype(np.float64)).mean())
        assert variant.measurements.score.value == pytest.approx(accuracy, abs=1e-12), variant.name
        assert variant.measurements.score.metrics["loss"] == pytest.approx(loss, rel=1e-4), variant.name
        expected = 100 * float((reference.argmax(axis=1) == labels).mean() - accuracy)
        assert variant.drop == pytest.approx(expected, abs=1e-6)
        assert variant.difference == pytest.approx(float(np.abs(probabilities - reference).max()), abs=1e-6)
        assert variant.drop <= 0.5
        assert variant.measurements.bytes == len(variant.graph)
        assert set(variant.measurements.milliseconds) == {"batch 1", "batch 32", "load"}
    assert 0 < variants["float16"].difference < 0.01
    assert 0 < variants["int8"].difference < 0.2


def test_the_gate_decides_by_the_measurements(variants: Mapping[str, Variant]) -> None:
    float32 = variants["float32"]
    assert float32.verdict.kept
    for variant in variants.values():
        if variant.parent:
            parent = variants[variant.parent]
            times, before = variant.measurements.milliseconds, parent.measurements.milliseconds
            faster = variant.name.endswith("-optimised") and any(times[name] <= 0.95 * before[name] for name in before)
            smaller = variant.measurements.bytes <= 0.99 * parent.measurements.bytes
            good = 100 * (float32.measurements.score.value - variant.measurements.score.value) <= 0.5 + 1e-9
            assert variant.verdict.kept == (parent.verdict.kept and good and (smaller or faster))
    # whatever the machine: half and nearly a quarter of the bytes
    assert variants["float16"].measurements.bytes < 0.55 * float32.measurements.bytes
    assert variants["int8"].measurements.bytes < 0.35 * float32.measurements.bytes
    assert variants["float16"].verdict.kept
    assert variants["int8"].verdict.kept


def test_variants_record_their_origin(variants: Mapping[str, Variant], trained: Trained, checked: CheckedModel) -> None:
    parent = read_metadata(checked.graph)
    of_the_file = {"parity_bound", "parity_data_sha256", "variant"}
    for variant in variants.values():
        found = read_metadata(variant.graph)
        assert found["variant"] == variant.name
        if variant.parent:
            assert found["parent_sha256"] == hashlib.sha256(variants[variant.parent].graph).hexdigest()
            assert not {"parity_bound", "parity_data_sha256"} & set(found)
            assert (found["gate_max_drop"], found["gate_data_sha256"]) == ("0.5", DATA_SHA256)
        assert {key: found[key] for key in parent.keys() - of_the_file} == {
            key: parent[key] for key in parent.keys() - of_the_file
        }
        assert ("optimised_for" in found) == variant.name.endswith("-optimised")
        keys = [entry.key for entry in onnx.ModelProto.FromString(variant.graph).metadata_props]
        assert keys == sorted(keys)
        assert all(key.startswith("moonfed.") for key in keys)
    int8 = read_metadata(variants["int8"].graph)
    assert int8["calibration_sha256"] == hashlib.sha256(trained.calibration_file.read_bytes()).hexdigest()
    assert int8["calibration_samples"] == "200"
    fits = json.loads(read_metadata(variants["int8-optimised"].graph)["optimised_for"])
    assert fits["onnxruntime"] == onnxruntime.__version__


def test_int8_has_unsigned_activations_and_signed_weights_per_channel(variants: Mapping[str, Variant]) -> None:
    proto = onnx.ModelProto.FromString(variants["int8"].graph)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    makers = {output: node for node in proto.graph.node for output in node.output}
    layers = [node for node in proto.graph.node if node.op_type in ("Conv", "Gemm")]
    assert len(layers) == 7
    for layer in layers:
        activation, weight = (makers[name] for name in layer.input[:2])
        assert (activation.op_type, weight.op_type) == ("DequantizeLinear", "DequantizeLinear")
        assert constants[activation.input[2]].data_type == TensorProto.UINT8
        assert constants[weight.input[0]].data_type == TensorProto.INT8
        channels = constants[weight.input[0]].dims[0]
        assert list(constants[weight.input[1]].dims) == [channels]
    assert [entry.type.tensor_type.elem_type for entry in proto.graph.input] == [TensorProto.UINT8]
    assert [entry.type.tensor_type.elem_type for entry in proto.graph.output] == [TensorProto.FLOAT]


def test_no_variant_quantises_preprocessing_or_softmax(variants: Mapping[str, Variant]) -> None:
    proto = onnx.ModelProto.FromString(variants["int8"].graph)
    makers = {output: node for node in proto.graph.node for output in node.output}
    first = next(node for node in proto.graph.node if node.op_type == "Conv")
    pending, before = [makers[makers[first.input[0]].input[0]].input[0]], set()  # before the first quantisation
    while pending:
        node = makers.get(pending.pop())
        if node is not None:
            before.add(node.op_type)
            pending.extend(node.input)
    assert {"Cast", "Mul", "Add"} <= before
    assert not {"QuantizeLinear", "DequantizeLinear"} & before
    assert makers["probabilities"].op_type == "Softmax"


def test_embeddings_stay_float32_in_every_variant(trained: Trained, runs: CoordinatorClient) -> None:
    inputs, graph = (
        trained.test.inputs[:20],
        check_model(runs, "r", NpzSource(trained.test_file), embeddings=True).graph,
    )
    expected = run(graph, inputs)
    spread = float(np.ptp(expected))
    for converted in (to_float16(graph), to_int8(graph, calibration(trained))):
        embeddings = run(converted, inputs)
        assert embeddings.dtype == np.float32
        assert embeddings.shape == (20, 256)
        assert 0 < np.abs(embeddings - expected).max() < 0.1 * spread


def run(graph: bytes, inputs: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["probabilities", "embeddings"]
    return np.asarray(session.run(["embeddings"], {"inputs": inputs})[0])


def test_calibrating_on_test_data_is_rejected(trained: Trained, tmp_path: Path) -> None:
    test, sha256 = trained.test.inputs, hashlib.sha256(trained.test_file.read_bytes()).hexdigest()
    with refused(InvalidInput, "calibration"):
        read_calibration(NpzSource(trained.test_file), RECIPE.input, test, sha256)
    mixed = np.concatenate([calibration(trained)[:30], test[5:7]])
    np.savez(tmp_path / "mixed.npz", inputs=mixed)
    with refused(InvalidInput, "calibration"):
        read_calibration(NpzSource(tmp_path / "mixed.npz"), RECIPE.input, test, sha256)
    np.savez(tmp_path / "none.npz", inputs=mixed[:0])
    with refused(NotFound, "calibration"):
        read_calibration(NpzSource(tmp_path / "absent.npz", "calibration"), RECIPE.input, test, sha256)
    with refused(InvalidInput, "calibration"):
        read_calibration(NpzSource(tmp_path / "none.npz"), RECIPE.input, test, sha256)
    found = read_calibration(NpzSource(trained.calibration_file), RECIPE.input, test, sha256)
    assert np.array_equal(found.inputs, calibration(trained))


def test_every_batch_is_used_for_calibration(trained: Trained, checked: CheckedModel) -> None:
    """The first 64 images are blank; calibrated on them alone, int8 would predict at random."""
    found = calibration(trained)
    late = np.concatenate([np.zeros_like(found[:64]), found[:136]])
    right = predicted(to_int8(checked.graph, late), trained.test.inputs).argmax(axis=1) == trained.test.labels
    assert right.mean() > 0.9


def test_large_calibration_data_are_sampled_evenly(tmp_path: Path) -> None:
    inputs = np.arange(1100, dtype=np.float32).reshape(-1, 1)
    np.savez(tmp_path / "much.npz", inputs=inputs)
    table = InputSpec(kind="features", shape=(1,))
    found = read_calibration(NpzSource(tmp_path / "much.npz"), table, inputs[:0], DATA_SHA256)
    assert found.inputs[:, 0].tolist() == list(range(0, 1100, 3))


def test_a_less_accurate_variant_is_dropped_with_its_optimised_copy(
    trained: Trained, trained_run: Control, tmp_path: Path
) -> None:
    """Calibrated on black images, int8 clips every brighter pixel."""
    black, output = tmp_path / "black.npz", tmp_path / "digits.onnx"
    np.savez(black, inputs=np.zeros_like(calibration(trained)))
    for name in ("digits.int8.onnx", "digits.int8-optimised.onnx"):
        (tmp_path / name).write_bytes(b"of an older export")
    report = exported(trained, trained_run, output, "--variant", "int8", "--optimised", "--calibration", str(black))
    entries = {entry["variant"]: entry for entry in report["variants"]}
    assert entries["int8"]["kept"] is False
    fallen = f"{entries['int8']['drop']:.2f}"
    assert entries["int8"]["reason"] == f"accuracy falls by {fallen} points; at most 0.5 are allowed"
    assert float(fallen) > 20
    assert entries["int8-optimised"]["reason"] == "int8 was dropped"
    assert entries["float32"]["kept"] is True
    assert not list(tmp_path.glob("*int8*"))
    options = ("--variant", "int8", "--calibration", str(black), "--max-drop", "100", "--keep", "smaller")
    report = exported(trained, trained_run, output, *options)
    assert (report["max_drop"], report["variants"][1]["kept"]) == (100, True)
    assert read_metadata((tmp_path / "digits.int8.onnx").read_bytes())["gate_max_drop"] == "100"


def test_an_old_optimised_copy_of_a_dropped_variant_is_removed(
    trained: Trained, trained_run: Control, tmp_path: Path
) -> None:
    black = tmp_path / "black.npz"
    np.savez(black, inputs=np.zeros_like(calibration(trained)))
    (tmp_path / "digits.int8-optimised.onnx").write_bytes(b"of an older export")
    exported(trained, trained_run, tmp_path / "digits.onnx", "--variant", "int8", "--calibration", str(black))
    assert not list(tmp_path.glob("*int8*"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--variant", "int4"], ("variant", "int4")),
        (["--variant", "all"], ("calibration", ANY)),
        (["--calibration", "c.npz"], ("calibration", "c.npz")),
        (["--output", "export"], ("output", "export")),
        (["--max-drop", "-1"], ("max-drop", -1.0)),
    ],
)
def test_invalid_options_are_named_before_the_coordinator_is_called(
    options: list[str], named: tuple[str, object], tmp_path: Path
) -> None:
    arguments = ["onnx", "r", "--data", "absent.npz", "--output", str(tmp_path / "m.onnx"), *options]
    with refused(InvalidInput, *named):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_variants_need_samples(checked: CheckedModel, trained: Trained) -> None:
    none = trained.test.take(np.arange(0))
    with pytest.raises(InvalidInput, match="data hold no samples"):
        make_variants(checked.graph, none, DATA_SHA256, VariantOptions(names=("float16",)))


def test_a_model_that_the_quantiser_cannot_convert_is_one_sentence(trained: Trained, checked: CheckedModel) -> None:
    """Its graph has an operator that ONNX Runtime lacks."""
    proto = onnx.ModelProto.FromString(checked.graph)
    proto.graph.node.append(onnx.helper.make_node("Inverse", ["probabilities"], ["inverse"], name="inverse"))
    options = VariantOptions(names=("int8",), calibration=Calibration(inputs=calibration(trained), sha256="c" * 64))
    with refused(InvalidInput, "variant", "int8"):
        make_variants(proto.SerializeToString(), trained.test, DATA_SHA256, options)
