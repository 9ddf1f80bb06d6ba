"""Global state of earlier rounds, kept as long as their updates may arrive."""

from __future__ import annotations

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.runs.assignments import GlobalState
from moonfed.coordinator.runs.global_state import GlobalStates
from moonfed.errors import WrongState


def state(number: int) -> GlobalState:
    return GlobalState(blobs={"model": ref_of_bytes(b"model %d" % number)})


@pytest.mark.parametrize("kept", [1, 3])
def test_all_models_that_updates_may_start_from_are_retained(kept: int) -> None:
    states = GlobalStates({1: state(0)}, kept)
    for round_ in range(1, 10):
        states.add(AttemptId(run="r", round=round_, attempt=1), state(round_))
    for round_ in range(11 - kept, 11):
        assert states[round_] == state(round_ - 1)
    with pytest.raises(WrongState, match=f"round {10 - kept} has ended"):
        states[10 - kept]
