"""A trained model of each task on our server, whose answers are compared with the plan's by HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.grpc.model_config_pb2 import TYPE_FP32, TYPE_INT64, TYPE_UINT8
from typer.testing import CliRunner

from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.files import Bundle, read_bundle
from moonfed.bundle.manifest import GRAPH_FILE, PLAN_FILE, WEIGHTS_FILE, InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.cli.program import app
from moonfed.export.binding import bind
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.self_checks import check_targets, random_samples
from moonfed.plan.interface import load_plan
from moonfed.release.repository import ModelDirectory
from tests.federation.test_released_tasks import bundle_of
from tests.support.compiled import cached_bundle
from tests.support.pet_models import read_config
from tests.support.plan_rounds import no_draws
from tests.support.server_process import answer_of, served
from tests.support.trained_model import RECIPE as DIGITS

pytestmark = pytest.mark.slow

SAMPLES, STEPS = 6, 3
LABELS = BundleRecipe(
    name="tags",
    model="mlp",
    task="multilabel",
    input=InputSpec(kind="features", shape=(4,)),
    target=TargetSpec(kind="labels", names=("cat", "dog"), shape=(2,)),
)
TEXTS = BundleRecipe(
    name="texts",
    model="gru",
    task="next-token",
    input=InputSpec(kind="tokens", shape=(6,), vocabulary=("", "a", "b", "c")),
    target=TargetSpec(kind="next", shape=(0,)),
)
BUNDLES: Mapping[str, Callable[[], Bundle]] = {  # most of other tests, which have built them
    "classification": lambda: cached_bundle(DIGITS),
    "multilabel": lambda: cached_bundle(LABELS),
    "regression": lambda: read_bundle(bundle_of("cam-1")),
    "segmentation": lambda: read_bundle(bundle_of("cam-2")),
    "anomaly-detection": lambda: read_bundle(bundle_of("cam-3")),
    "next-token": lambda: cached_bundle(TEXTS),
}
SHAPES = {  # what a server is to say of the output for one sample
    "classification": ("probabilities", [10]),
    "multilabel": ("probabilities", [2]),
    "regression": ("values", [2]),
    "segmentation": ("probabilities", [3, 16, 16]),
    "anomaly-detection": ("scores", []),
    "next-token": ("probabilities", [6, 4]),
}
TYPES = {"image": ("UINT8", TYPE_UINT8), "tokens": ("INT64", TYPE_INT64)}  # of other inputs than numbers
Array = npt.NDArray[Any]


def train(bundle: Bundle, directory: Path, file: Path) -> tuple[Array, Array]:
    """Train a few steps, write the ONNX file, and return samples and what the plan predicts for them."""
    manifest = bundle.manifest
    for name in (PLAN_FILE, WEIGHTS_FILE):
        (directory / name).write_bytes(bundle.contents[name])
    plan = load_plan(directory / PLAN_FILE, "cpu")
    initial = split(np.array(open_model(directory / WEIGHTS_FILE, manifest.tensors)), manifest.tensors)
    plan.begin_round(list(map(torch.from_numpy, initial.values())), [], {}, manifest.training.hyperparameters)
    samples = random_samples(manifest.input, SAMPLES)
    inputs = torch.from_numpy(samples)
    for _ in range(STEPS):
        plan.step(inputs, check_targets(manifest.target, SAMPLES), torch.empty(0), no_draws(inputs))
    model = np.concatenate([tensor.numpy().reshape(-1) for tensor in plan.end_round(STEPS)["model"]])
    file.write_bytes(bind(bundle.contents[GRAPH_FILE], model, manifest))
    return samples, plan.predict(inputs).numpy()


def by_http(address: str, task: str, samples: Array, kind: str) -> tuple[dict[str, Any], Array]:
    given = {"name": "inputs", "shape": list(samples.shape), "datatype": kind, "data": samples.reshape(-1).tolist()}
    status, answer = answer_of(address, f"/v2/models/{task}/infer", {"inputs": [given]})
    assert status == 200, answer
    (output,) = answer["outputs"]
    return output, np.array(output["data"], np.float32).reshape(output["shape"])


def test_a_trained_model_of_each_task_is_configured_and_answers(tmp_path: Path) -> None:
    bundles = {task: build() for task, build in BUNDLES.items()}
    trained = {task: train(bundle, tmp_path, tmp_path / f"{task}.onnx") for task, bundle in bundles.items()}
    for task in bundles:
        arguments = ["repository", str(tmp_path / f"{task}.onnx"), "--name", task, "--output", str(tmp_path / "models")]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    with served(tmp_path / "models", tmp_path / "log") as server, closing(InferenceServerClient(server.grpc)) as client:
        for task, (samples, expected) in trained.items():
            sample, (output, shape) = bundles[task].manifest.input, SHAPES[task]
            kind, number = TYPES.get(sample.kind, ("FP32", TYPE_FP32))
            config = read_config(ModelDirectory(tmp_path / "models", task))
            told = [(each.name, list(each.dims), each.data_type) for each in (*config.input, *config.output)]
            assert told == [("inputs", list(sample.shape), number), (output, shape, TYPE_FP32)]
            given = InferInput("inputs", list(samples.shape), kind)
            given.set_data_from_numpy(samples)
            answer, answered = by_http(server.http, task, samples, kind)
            assert (answer["name"], answer["datatype"], answer["shape"]) == (output, "FP32", [SAMPLES, *shape])
            for found in (answered, client.infer(task, [given]).as_numpy(output)):
                np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
