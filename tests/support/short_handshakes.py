"""A patch for programs in tests, see `forked_process`: a coordinator ends an unfinished handshake after a second."""

from __future__ import annotations

from moonfed.coordinator.rpc import connections

connections.HANDSHAKE_SECONDS = 1
