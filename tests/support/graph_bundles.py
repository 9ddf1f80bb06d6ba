"""Bundles whose plan is there in both forms: in TorchScript, and as graphs of operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, MANIFEST_FILE, InputSpec
from moonfed.bundle.target import class_target
from moonfed.export import bundle_builder
from moonfed.export.augmentation import NoAugmentation, build_augmentation
from moonfed.export.bundle_recipe import BundleRecipe, read_settings
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.export.checked_layers import check_layers
from moonfed.export.criteria.criterion import build_criterion
from moonfed.export.graph.container import container
from moonfed.export.graph.rounds import Arguments, starts_of, trace_rounds
from moonfed.export.training_plan import TrainingPlan
from moonfed.server_rules import read_server_rule
from moonfed.signing.key_files import open_signer
from tests.support.compiled import device_bundle
from tests.support.session_cache import cached

TRACED_BATCH = 57
LEAVES = BundleRecipe(
    name="leaves",
    model="mlp",
    input=InputSpec(kind="features", shape=(6,)),
    target=class_target(("oak", "elm", "ash")),
    method="fedavg",
    settings={"epochs": 1},
    server_rule=read_server_rule({"name": "mean"}),
)


def graph_bundle(recipe: BundleRecipe) -> Path:
    """Return the path of a signed bundle with graphs, without an ONNX graph, built once per session."""

    def build(path: Path) -> None:
        bundle = with_graphs(device_bundle(recipe), graphs_of(recipe))
        write_bundle(path, sign_new(bundle, open_signer([], lambda _: None), SigningOptions()).bundle)

    return cached(b"graph bundle" + repr(recipe).encode(), build)


def read_graph_bundle(recipe: BundleRecipe) -> Bundle:
    """Return the same bundle."""
    return read_bundle(graph_bundle(recipe))


def with_graphs(bundle: Bundle, graphs: bytes) -> Bundle:
    """Add a graph plan to a bundle, which is then not signed."""
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, GRAPH_PLAN_FILE: ref_of_bytes(graphs)})
    return Bundle(manifest, {**bundle.contents, GRAPH_PLAN_FILE: graphs, MANIFEST_FILE: manifest.to_bytes()})


def graphs_of(recipe: BundleRecipe) -> bytes:
    """Trace a recipe's training plan."""
    settings = read_settings(recipe.method, recipe.settings, recipe.optimiser, recipe.task)
    plan = TrainingPlan(
        check_layers(bundle_builder._network(recipe)),
        build_criterion(settings.task, recipe.target, recipe.input),
        settings.method,
        settings.optimiser,
        settings.hyperparameters,
        build_augmentation(recipe.augmentation, recipe.input, recipe.target) or NoAugmentation(),
        None,
    )
    sample = torch.uint8 if recipe.input.kind == "image" else torch.float32
    arguments = Arguments(
        model=[tuple(tensor.shape) for tensor in plan.state],
        roles={},
        hyperparameters=settings.hyperparameters,
        sample=(recipe.input.shape, sample),
        target=(recipe.target.shape, torch.int64),
    )
    return container(plan, arguments, trace_rounds(plan, arguments, starts_of(plan, arguments), TRACED_BATCH))
