"""Bundles whose plan is there in both forms: in TorchScript, and as graphs of operators."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export import bundle_builder
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.bundle_signing import SigningOptions, sign_new
from moonfed.server_rules import read_server_rule
from moonfed.signing.key_files import open_signer
from tests.support.compiled import build_device_bundle
from tests.support.session_cache import cached
from tests.support.without_graph_plans import TRACE

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
        with mock.patch.object(bundle_builder, "_trace", TRACE):
            bundle = build_device_bundle(recipe)
        write_bundle(path, sign_new(bundle, open_signer([], lambda _: None), SigningOptions()).bundle)

    return cached(b"graph bundle" + repr(recipe).encode(), build)


def read_graph_bundle(recipe: BundleRecipe) -> Bundle:
    """Return the same bundle."""
    return read_bundle(graph_bundle(recipe))
