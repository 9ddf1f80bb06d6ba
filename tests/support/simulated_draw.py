"""A patch for programs in tests, see `forked_process`: a run on devices draws by the secret of its simulation."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.records import RunRecord
from moonfed.coordinator.storage.store import Store
from tests.support.simulations import make_simulation

_add_run = Store.add_run


def _add_simulated_run(
    store: Store,
    record: RunRecord,
    bundle: Mapping[str, BlobRef] | None = None,
    other_state: Mapping[str, BlobRef] | None = None,
    draw: Draw | None = None,
) -> None:
    _add_run(store, record, bundle, other_state, draw or make_simulation(seed=record.settings.seed).draw)


setattr(Store, "add_run", _add_simulated_run)
