"""The float32 file of a run's model: its metadata, its embeddings, and reproducibility."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from moonfed.blobs.tensors import split
from moonfed.bundle.manifest import GRAPH_FILE
from moonfed.bundle.target import class_target
from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput
from moonfed.export.binding import bind, read_metadata
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.export.model_zoo import build_network
from moonfed.export.network import Network
from moonfed.export.onnx_graph import export_graph
from moonfed.export.scoring import Predictor
from moonfed.release.model_file import CheckedModel, check_model
from moonfed.release.simplify import simplify
from moonfed.version import RELEASE
from tests.export.conftest import SMALL_IMAGE
from tests.support.control_service import Control
from tests.support.refusals import refused
from tests.support.trained_model import CLASSES, RECIPE, Trained

pytestmark = pytest.mark.slow


def network_of(trained: Trained) -> Network:
    """Build the same network in PyTorch, independently of plan and graph."""
    network = build_network(
        RECIPE.model, RECIPE.input, class_target(CLASSES), mean=RECIPE.mean, deviation=RECIPE.deviation, seed=99
    )
    tensors = split(trained.model, trained.bundle.manifest.tensors)
    network.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in tensors.items()})
    return network.eval()


def test_the_file_records_its_origin_and_its_checks(
    checked: CheckedModel, trained: Trained, trained_run: Control
) -> None:
    found = read_metadata(checked.graph)
    assert (found["release"], found["variant"], found["method"]) == (RELEASE, "float32", "moon")
    assert tuple(json.loads(found["target"])["names"]) == CLASSES
    assert json.loads(found["input"]) == {"kind": "image", "shape": [8, 8, 1]}
    assert (found["run"], found["round"]) == ("r", "1")
    assert found["model_sha256"] == trained_run.rounds[0].model.sha256
    assert found["parity_bound"] == "1e-05"
    assert found["parity_data_sha256"] == hashlib.sha256(trained.test_file.read_bytes()).hexdigest()
    steps = json.loads(found["preprocessing"])
    # mean 0.25 and deviation 0.5 of pixels from 0 to 1; sides of 8 become 32
    assert steps["factor"] == pytest.approx([1 / (255 * 0.5)], rel=1e-6)
    assert steps["shift"] == pytest.approx([-0.25 / 0.5], rel=1e-6)
    assert steps["resized"] == [32, 32]


def test_metadata_entries_are_sorted_and_only_moonfeds(checked: CheckedModel) -> None:
    keys = [entry.key for entry in onnx.ModelProto.FromString(checked.graph).metadata_props]
    assert keys == sorted(keys)
    assert all(key.startswith("moonfed.") for key in keys)


def test_constants_are_folded(checked: CheckedModel) -> None:
    found, folded = (
        Counter(node.op_type for node in onnx.ModelProto.FromString(graph).graph.node)
        for graph in (checked.graph, simplify(checked.graph))
    )
    assert found == folded


def test_embeddings_are_the_networks_representations(
    runs: CoordinatorClient, trained: Trained, checked: CheckedModel
) -> None:
    both = check_model(runs, "r", NpzSource(trained.test_file), embeddings=True)
    session = onnxruntime.InferenceSession(both.graph, providers=["CPUExecutionProvider"])
    inputs = trained.test.inputs[:40]
    probabilities, embeddings = session.run(["probabilities", "embeddings"], {"inputs": inputs})
    network = network_of(trained)
    with torch.no_grad():
        z_BD = network.represent(torch.from_numpy(inputs))
        expected = torch.softmax(network.outputs(z_BD), dim=1)
    assert np.shape(embeddings) == (40, 256)
    assert np.abs(np.asarray(embeddings) - z_BD.numpy()).max() < 1e-4
    assert np.abs(np.asarray(probabilities) - expected.numpy()).max() < 1e-5
    session = onnxruntime.InferenceSession(checked.graph, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["probabilities"]


def test_embeddings_of_a_bundle_without_them_are_rejected(trained: Trained) -> None:
    proto = onnx.ModelProto.FromString(trained.bundle.contents[GRAPH_FILE])
    del proto.graph.output[1]
    older, manifest = proto.SerializeToString(), trained.bundle.manifest
    with refused(InvalidInput, "embeddings"):
        bind(older, trained.model, manifest, embeddings=True)
    predictions = Predictor(bind(older, trained.model, manifest)).predict(trained.test.inputs[:3])
    assert predictions.shape == (3, 10)


def test_folding_removes_batch_normalisation_and_preserves_predictions() -> None:
    network = build_network(
        "tests.support.residual_network:small_resnet",
        SMALL_IMAGE,
        class_target(10),
        mean=(0.5,),
        deviation=(0.25,),
        seed=3,
    )
    with torch.no_grad():
        for module in network.modules():  # as after training: statistics that change something
            if isinstance(module, torch.nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.uniform_(-0.3, 0.3, generator=torch.Generator().manual_seed(1))
                module.running_var.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(2))
    graph = export_graph(network, SMALL_IMAGE, model="tested")
    folded = simplify(graph)
    before, after = (
        Counter(node.op_type for node in onnx.ModelProto.FromString(g).graph.node) for g in (graph, folded)
    )
    assert before["BatchNormalization"] > 0
    assert (after["BatchNormalization"], after["Expand"], after["Constant"], after["Shape"]) == (0, 0, 0, 0)
    for size in (1, 7):  # the batch dimension is still dynamic
        inputs = np.random.default_rng(size).integers(0, 256, (size, *SMALL_IMAGE.shape), dtype=np.uint8)
        with torch.no_grad():
            expected = torch.softmax(network.eval()(torch.from_numpy(inputs)), dim=1).numpy()
        assert np.abs(Predictor(folded).predict(inputs) - expected).max() < 1e-5


def test_an_export_in_another_process_is_byte_identical(
    runs: CoordinatorClient, trained: Trained, trained_run: Control, tmp_path: Path
) -> None:
    output, here = tmp_path / "there.onnx", check_model(runs, "r", NpzSource(trained.test_file), embeddings=True).graph
    arguments = ["onnx", "r", "--data", str(trained.test_file), "--output", str(output), "--insecure"]
    arguments += ["--coordinator", trained_run.address, "--embeddings"]
    code = f"from moonfed.cli.program import app; app({arguments!r})"
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == here
    assert read_metadata(here)["name"] == RECIPE.name
