"""A patch for programs in tests, see `forked_process`: an ineligible device looks at its data as a task arrives."""

from __future__ import annotations

from moonfed.edge_client.agent import eligibility


def _until_a_task(self: eligibility.EligibilityChecks, longest: float) -> float:
    return longest


eligibility.LOOK_SECONDS = 0.1
eligibility.EligibilityChecks.pause = _until_a_task  # type: ignore[method-assign]
