"""A patch for programs in tests, see `forked_process`: simulations share bundles, which have no graphs."""

from __future__ import annotations

from moonfed.experiments.fleet import preparation
from tests.support.compiled import device_bundle

setattr(preparation, "build_bundle", device_bundle)
