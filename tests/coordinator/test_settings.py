from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies

from coordinator.rounds.settings import Amount, Settings, parse_amount
from moonfed.errors import InvalidInput


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"minimum_devices": 0}, "minimum_devices is 0"),
        ({"cohort": Amount(fraction=0.0)}, "cohort is 0.0"),
        ({"cohort": Amount(fraction=1.5)}, "cohort is 1.5"),
        ({"cohort": Amount(fraction=float("nan"))}, "cohort is nan"),
        ({"cohort": Amount()}, "cohort is"),
        ({"quorum": Amount(count=0)}, "quorum is 0"),
        ({"quorum": Amount(count=3), "cohort": Amount(count=2)}, "quorum is 3"),
        ({"deadline_seconds": 0.0}, "deadline_seconds is 0"),
        ({"deadline_seconds": float("inf")}, "deadline_seconds is inf"),
        ({"patience_seconds": -1.0}, "patience_seconds is -1"),
        ({"sampling": "size"}, "sampling is 'size'; it must be 'uniform' or 'samples'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Settings(**{"rounds": 1, **fields})


@pytest.mark.parametrize(
    ("text", "total", "expected"), [("10", 7, 10), ("10%", 30, 3), ("10%", 31, 4), ("all", 9, 9), ("0.1%", 5, 1)]
)
def test_amounts_as_operators_write_them(text: str, total: int, expected: int) -> None:
    assert parse_amount("cohort", text).of(total) == expected


@pytest.mark.parametrize("text", ["", "many", "0", "0%", "101%", "-3", "nan%", "1.5"])
def test_amounts_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="cohort is"):
        parse_amount("cohort", text)


amounts = strategies.one_of(
    strategies.integers(1, 12).map(lambda count: Amount(count=count)),
    strategies.floats(0.05, 1).map(lambda fraction: Amount(fraction=fraction)),
)


@given(amounts, amounts, strategies.integers(1, 12))
def test_a_round_that_may_open_can_reach_its_quorum(cohort: Amount, quorum: Amount, minimum: int) -> None:
    try:
        settings = Settings(rounds=1, cohort=cohort, quorum=quorum, minimum_devices=minimum)
    except InvalidInput:
        return
    needed = settings.devices_needed
    assert needed >= minimum

    def reachable(attending: int) -> bool:
        drawn = settings.cohort_size(attending)
        return 1 <= quorum.of(drawn) <= drawn <= attending

    assert all(reachable(attending) for attending in range(needed, needed + 20))
    assert needed == minimum or not reachable(needed - 1), "nobody waits for more than it takes"


def test_settings_survive_the_store() -> None:
    settings = Settings(
        rounds=3, cohort=Amount(count=2), quorum=Amount(fraction=0.3), seed=2**64 - 1, sampling="samples"
    )
    assert Settings.from_document(settings.to_document()) == settings
