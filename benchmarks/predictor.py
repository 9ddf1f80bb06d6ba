"""Time that `Predictor` adds to a call: over ONNX Runtime's own run, and over the plan in the calling process.

Both sides answer for one image and alternate call by call; the difference is the median of the pairs' differences.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.store import BlobDirectory, ref_of_bytes
from moonfed.bundle.manifest import GRAPH_FILE, MANIFEST_FILE, PLAN_FILE, InputSpec
from moonfed.bundle.manifest import WEIGHTS_FILE as INITIAL_FILE
from moonfed.bundle.target import class_target
from moonfed.edge_client.inference.onnx_model import INPUT, OnnxModel
from moonfed.edge_client.predictor import Predictor
from moonfed.edge_client.state import model_files
from moonfed.edge_client.state.release_files import NewRelease
from moonfed.edge_client.state.releases import RECORDS, ReleaseStore
from moonfed.export.binding import bind_file
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.model_zoo import PROJECTION
from moonfed.models.release_manifest import FLOAT32, MODEL_FILE, VARIANT_FILES, WEIGHTS_FILE, ReleaseManifest
from moonfed.sandbox.plan_task import PlanModel
from moonfed.sandbox.policy import available_level

NAME, CALLS, WARM_UP = "benchmark", 1000, 20
ONNX = Figure(name="added to a run of ONNX Runtime", unit="ms", at_most=1.0)
PLAN = Figure(name="added to a prediction of the plan", unit="ms", at_most=1.0)


def measure_predictor(calls: int = CALLS) -> Tables:
    """Measure both figures and the times that they are added to, with one thread."""
    torch.set_num_threads(1)
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)
    with TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        _install(state)
        progress(f"predictor: {calls} calls with ONNX Runtime")
        with Predictor(state, NAME, threads=1) as predictor:
            model = predictor._loaded.model
            assert isinstance(model, OnnxModel)  # noqa: S101
            session = model._session
            yield _figures(
                ONNX, lambda: predictor.predict(image), lambda: session.run(["probabilities"], {INPUT: image}), calls
            )
        progress(f"predictor: {calls} calls with the plan")
        with (
            patch.object(model_files, "find_spec", return_value=None),
            Predictor(state, NAME, threads=1, sandbox=available_level()) as predictor,
        ):
            plan = PlanModel(state / RECORDS / NAME / "1", "cpu")
            yield _figures(PLAN, lambda: predictor.predict(image), lambda: plan.predict(image), calls)


def _figures(added: Figure, ours: Callable[[], object], bare: Callable[[], object], calls: int) -> list[Figure]:
    for _ in range(WARM_UP):
        ours()
        bare()
    pairs = [(_seconds(ours), _seconds(bare)) for _ in range(calls)]
    return [
        Figure(name=f"one image, without what is {added.name}", value=_milliseconds(b for _, b in pairs), unit="ms"),
        replace(added, value=_milliseconds(a - b for a, b in pairs)),
    ]


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _milliseconds(seconds: Iterator[float]) -> float:
    return 1e3 * statistics.median(seconds)


def _install(state: Path) -> None:
    """Install a release of a convolutional network's initial weights."""
    recipe = BundleRecipe(
        name=NAME, model="cnn", input=InputSpec(kind="image", shape=(32, 32, 3)), target=class_target(10),
        method="fedavg", projection=PROJECTION,
    )  # fmt: skip
    bundle = build_bundle(recipe)
    blobs = BlobDirectory(state / "blobs")
    weights = blobs.path(blobs.put_bytes(bundle.contents[INITIAL_FILE]).sha256)
    graph = bind_file(bundle.contents[GRAPH_FILE], weights, bundle.manifest)
    contents = {**dict.fromkeys(VARIANT_FILES, b"# nothing\n"), MODEL_FILE: graph}
    plan = {
        MANIFEST_FILE: bundle.contents[MANIFEST_FILE],
        PLAN_FILE: bundle.contents[PLAN_FILE],
        WEIGHTS_FILE: bundle.contents[INITIAL_FILE],
    }
    manifest = ReleaseManifest(
        name=NAME,
        version=1,
        created=0,
        run=NAME,
        round=0,
        input=bundle.manifest.input,
        target=bundle.manifest.target,
        variants={FLOAT32: {name: ref_of_bytes(content) for name, content in contents.items()}},
        plan={name: ref_of_bytes(content) for name, content in plan.items()},
    )
    ReleaseStore(state).install(
        NewRelease(
            manifest=manifest,
            manifest_file=blobs.path(blobs.put_bytes(manifest.to_bytes()).sha256),
            variant=FLOAT32,
            deployment=1,
            files={name: blobs.path(blobs.put_bytes(content).sha256) for name, content in contents.items()},
            plan_files={name: blobs.path(blobs.put_bytes(content).sha256) for name, content in plan.items()},
        )
    )
