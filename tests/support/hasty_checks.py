"""A patch for programs in tests, see `forked_process`: a device checks again after a tenth of a second."""

from __future__ import annotations

from moonfed.edge_client.agent import eligibility, executor

eligibility.RECHECK_SECONDS = eligibility.LOOK_SECONDS = executor.IDLE_SECONDS = 0.1
