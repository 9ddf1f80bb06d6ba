"""Manifests of bundles that also have a graph plan."""

from __future__ import annotations

from dataclasses import replace

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import GRAPH_PLAN_FILE, Manifest


def with_graphs(manifest: Manifest, graphs: bytes = b"graphs", minimum_torch: str = "2.4") -> Manifest:
    """Return the manifest of a bundle with this file of graphs besides its others."""
    files = {**manifest.files, GRAPH_PLAN_FILE: ref_of_bytes(graphs)}
    return replace(manifest, files=files, plan=replace(manifest.plan, graph_minimum_torch=minimum_torch))
