"""The plan of a simulation: the form that this machine prefers, or the one that its recipe requires."""

from __future__ import annotations

from pathlib import Path

from moonfed.bundle.manifest import GRAPH_PLAN_FILE, PLAN_FILE
from moonfed.errors import VersionMismatch
from moonfed.experiments.fleet.layout import Layout
from tests.support.coordinator import make_bundle
from tests.support.graph_manifest import with_graphs
from tests.support.refusals import refused


def test_the_recipe_may_require_graphs(tmp_path: Path) -> None:
    layout, manifest = Layout(tmp_path), make_bundle().manifest
    both = with_graphs(manifest)
    assert layout.plan(both) == layout.bundle / PLAN_FILE
    layout.recipe.write_text('{"require_plan": "graph"}')
    assert layout.plan(both) == layout.bundle / GRAPH_PLAN_FILE
    with refused(VersionMismatch, "plan"):
        layout.plan(manifest)
