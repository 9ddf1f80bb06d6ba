"""A patch for programs in tests, see `forked_process`: an ineligible device notices changed data only in a round."""

from __future__ import annotations

from moonfed.edge_client.agent import eligibility

eligibility.EligibilityChecks.recheck = lambda *_: None  # type: ignore[method-assign]
