from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies

from moonfed.coordinator.rounds.fedbuff_settings import FedBuffSettings, parse_asynchronous
from moonfed.coordinator.rounds.settings import Amount, RunSettings, parse_amount, parse_fraction
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
        ({"heartbeat_timeout_seconds": 0.0}, "heartbeat_timeout_seconds is 0"),
        ({"over_selection": -0.1}, r"over_selection is -0.1; it must be from 0 to 10"),
        ({"over_selection": float("nan")}, "over_selection is nan"),
        ({"labels": {"": "berlin"}}, "label is '=berlin'"),
        ({"trusted_labels": True}, "trusted_labels is given without a label"),
        ({"labels": {f"n{number}": "x" for number in range(65)}}, "there are 65 labels"),
        ({"sampling": "size"}, "sampling is 'size'; it must be 'uniform' or 'samples'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
    ],
)
def test_an_invalid_setting_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        RunSettings(**{"rounds": 1, **fields})


@pytest.mark.parametrize(
    ("text", "total", "expected"), [("10", 7, 10), ("10%", 30, 3), ("10%", 31, 4), ("all", 9, 9), ("0.1%", 5, 1)]
)
def test_amounts_as_operators_write_them(text: str, total: int, expected: int) -> None:
    assert parse_amount("cohort", text).of(total) == expected


@pytest.mark.parametrize("text", ["", "many", "0", "0%", "101%", "-3", "nan%", "1.5"])
def test_invalid_amounts_are_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="cohort is"):
        parse_amount("cohort", text)


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
    needed = settings.devices_needed
    assert needed >= minimum

    def reachable(session: int) -> bool:
        drawn = settings.cohort_size(session)
        return 1 <= quorum.of(drawn) <= drawn <= session

    assert all(reachable(session) for session in range(needed, needed + 20))
    assert needed == minimum or not reachable(needed - 1), "nobody waits for more than it takes"


@given(amounts, strategies.floats(0, 3), strategies.integers(1, 40))
def test_the_updates_that_close_a_round_follow_from_its_selection(cohort: Amount, beyond: float, session: int) -> None:
    settings = RunSettings(rounds=1, cohort=cohort, quorum=Amount(count=1), over_selection=beyond)
    drawn, plain = settings.drawn(session), settings.cohort_size(session)
    assert plain <= drawn <= session
    assert settings.updates_wanted(drawn) == plain


@pytest.mark.parametrize(
    ("text", "expected"), [("30%", 0.3), ("0.25", 0.25), ("0", 0.0), ("150 %", 1.5), (" 100% ", 1.0)]
)
def test_fractions_as_operators_write_them(text: str, expected: float) -> None:
    assert parse_fraction("over_selection", text) == pytest.approx(expected)
    with pytest.raises(InvalidInput, match="over_selection is 'some'; it must be like 30%"):
        parse_fraction("over_selection", "some")


def test_a_number_of_devices_is_not_a_fraction() -> None:
    """`--over-selection 5` with `--cohort 20` must not select five times as many devices as requested."""
    with pytest.raises(InvalidInput, match="over_selection is '5', a share without a percent sign"):
        parse_fraction("over_selection", "5")


def test_a_staleness_without_asynchronous_rounds_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="max_staleness is 5; it applies to asynchronous rounds only"):
        parse_asynchronous(None, 5)
    assert parse_asynchronous(None, None) is None
    assert parse_asynchronous(3, None) == FedBuffSettings(buffer=3, max_staleness=20)
    assert parse_asynchronous(3, 0) == FedBuffSettings(buffer=3, max_staleness=0)


def test_settings_survive_the_store() -> None:
    settings = RunSettings(
        rounds=3,
        cohort=Amount(count=2),
        quorum=Amount(fraction=0.3),
        seed=2**64 - 1,
        sampling="samples",
        over_selection=0.3,
        labels={"site": "berlin"},
        trusted_labels=True,
    )
    assert RunSettings.from_document(settings.to_document()) == settings
