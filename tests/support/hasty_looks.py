"""A patch for programs in tests, see `forked_process`: an ineligible device often looks at its data."""

from __future__ import annotations

from moonfed.edge_client.agent import eligibility

eligibility.LOOK_SECONDS = 0.1
