"""The memory of a step, from its graphs."""

from __future__ import annotations

import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.export import bundle_builder
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.graph.step_memory import step_bytes
from moonfed.export.inspection import describe, table
from tests.support.without_graph_plans import TRACE


def test_a_step_needs_its_activations_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_builder, "_trace", TRACE)
    sample = InputSpec(kind="image", shape=(32, 32, 3))
    bundle = build_bundle(BundleRecipe(name="pictures", model="cnn", input=sample, target=class_target(10)))
    few, many = step_bytes(bundle, 4), step_bytes(bundle, 68)
    activations = bundle.manifest.plan.activation_bytes
    assert few > 4 * 2 * 62_006  # a model and its momenta
    assert 0.7 < (many - few) / 64 / activations < 2.0
    graphs = describe(bundle)["graphs"]
    assert "aten::conv2d" in graphs["operators"]
    assert graphs["step_bytes"] == step_bytes(bundle, graphs["batch"])
    assert "graph/1" in table(bundle)
