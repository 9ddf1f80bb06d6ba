"""Plans and bundles that are compiled once per session, by whichever of the two test processes needs them first.

Compilation is deterministic (tests/export/test_bundle_builder.py), so a test that is not about compilation may share
its result.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch

from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.bundle.manifest import InputSpec
from moonfed.export import bundle_builder
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.criteria.criterion import Criterion
from moonfed.export.methods.method import Method
from moonfed.export.network import Network
from moonfed.export.onnx_graph import export_graph
from moonfed.export.plan_builder import compile_plan, plan_bytes
from tests.support.session_cache import cached


def cached_bundle(recipe: BundleRecipe) -> Bundle:
    """Build a bundle, or read the one that was built from an equal recipe."""
    return read_bundle(cached(b"bundle" + repr(recipe).encode(), lambda path: write_bundle(path, build_bundle(recipe))))


def device_bundle(recipe: BundleRecipe) -> Bundle:
    """Build a bundle without graph and checks, or read the one that was built from an equal recipe."""
    key = b"device bundle" + repr(recipe).encode()
    return read_bundle(cached(key, lambda path: write_bundle(path, build_device_bundle(recipe))))


def build_device_bundle(recipe: BundleRecipe) -> Bundle:
    """Build a bundle without graph and checks, which take the longest and do not matter to devices."""
    with (
        mock.patch.object(bundle_builder, "export_graph", return_value=b""),
        mock.patch.object(bundle_builder, "_check", new=lambda *given: given[3]),  # the manifest
    ):
        return build_bundle(recipe)


def cached_graph(network: Network, sample: InputSpec, *, model: str, **options: Any) -> bytes:
    """Export a graph, or read the one that was exported from an equal network."""
    key = b"graph" + pickle.dumps((network, sample, model, options))
    return cached(
        key, lambda path: path.write_bytes(export_graph(network, sample, model=model, **options))
    ).read_bytes()


def cached_plan(
    network: Network,
    method: Method,
    hyperparameter_names: Iterable[str],
    *,
    criterion: Criterion | None = None,
    augmentation: torch.nn.Module | None = None,
    model: str = "tested",
) -> bytes:
    """Compile a plan, or read the one that was compiled from an equal network and method."""
    names = list(hyperparameter_names)

    def compiled() -> bytes:
        return plan_bytes(
            compile_plan(network, method, names, criterion=criterion, augmentation=augmentation, model=model)
        )

    try:
        key = pickle.dumps((network, method, names, criterion, augmentation, model))
    except (AttributeError, pickle.PicklingError):  # of a class within a function, which has no name to go by
        return compiled()
    return cached(b"plan" + key, lambda path: path.write_bytes(compiled())).read_bytes()
