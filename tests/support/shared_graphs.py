"""A patch for programs in tests, see `forked_process`: bundles of one network share its graph."""

from __future__ import annotations

from moonfed.export import bundle_builder
from tests.support.compiled import cached_graph

bundle_builder.export_graph = cached_graph  # type: ignore[attr-defined]
