from __future__ import annotations

from hypothesis import given, strategies

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.sizes import cohort_size, devices_needed, drawn, updates_wanted
from moonfed.errors import InvalidInput

amounts = strategies.one_of(
    strategies.integers(1, 12).map(lambda count: Amount(count=count)),
    strategies.floats(0.05, 1).map(lambda fraction: Amount(fraction=fraction)),
)


@given(amounts, amounts, strategies.integers(1, 12))
def test_a_round_that_may_open_can_reach_its_quorum(cohort: Amount, quorum: Amount, minimum: int) -> None:
    try:
        settings = RunSettings(rounds=1, cohort=cohort, quorum=quorum, minimum_devices=minimum)
    except InvalidInput:
        return
    needed = devices_needed(settings)
    assert needed >= minimum

    def reachable(session: int) -> bool:
        size = cohort_size(settings, session)
        return 1 <= quorum.of(size) <= size <= session

    assert all(reachable(session) for session in range(needed, needed + 20))
    assert needed == minimum or not reachable(needed - 1), "nobody waits for more than it takes"


@given(amounts, strategies.floats(0, 3), strategies.integers(1, 40))
def test_the_updates_that_close_a_round_follow_from_its_selection(cohort: Amount, beyond: float, session: int) -> None:
    settings = RunSettings(rounds=1, cohort=cohort, quorum=Amount(count=1), over_selection=beyond)
    chosen, plain = drawn(settings, session), cohort_size(settings, session)
    assert plain <= chosen <= session
    assert updates_wanted(settings, chosen) == plain
