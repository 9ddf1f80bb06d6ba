"""A patch for programs in tests, see `forked_process`: bundles have graph plans, as an operator's do."""

from __future__ import annotations

from moonfed.export import bundle_builder
from tests.support.without_graph_plans import TRACE

bundle_builder._trace = TRACE
