"""A run's settings as JSON."""

from __future__ import annotations

import pytest

from moonfed.coordinator.documents.settings import settings_document
from moonfed.coordinator.rounds.settings import Amount, parse_amount
from moonfed.v1 import control_pb2


@pytest.mark.parametrize(
    ("fraction", "devices", "text"),
    [
        (2 / 3, 3, "66.6666666667%"),
        (1 / 3, 6, "33.3333333333%"),
        (0.1, 30, "10%"),
        (5 / 7, 7, "71.4285714286%"),
        (0.125, 8, "12.5%"),
    ],
)
def test_a_fraction_that_is_given_back_draws_as_many_devices(fraction: float, devices: int, text: str) -> None:
    found = settings_document(control_pb2.RunSettings(cohort=control_pb2.Amount(fraction=fraction)))["cohort"]
    assert found == text == str(Amount(fraction=fraction))
    assert parse_amount("cohort", found).of(devices) == Amount(fraction=fraction).of(devices)


def test_settings_have_what_was_chosen_and_none_for_the_rest() -> None:
    settings = control_pb2.RunSettings(
        cohort=control_pb2.Amount(count=5),
        quorum=control_pb2.Amount(fraction=0.8),
        sampling=control_pb2.SAMPLING_UNIFORM,
        labels={"site": "berlin"},
        asynchronous=control_pb2.Asynchronous(buffer=3, max_staleness=4),
        robust=control_pb2.RobustSettings(weight_cap=1.5, reducer="krum", reducer_settings={"attackers": "2"}),
        exclude_after=4,
    )
    found = settings_document(settings)
    assert (found["cohort"], found["quorum"], found["sampling"]) == ("5", "80%", "uniform")
    assert (found["labels"], found["asynchronous"]) == ({"site": "berlin"}, {"buffer": 3, "max_staleness": 4})
    assert found["robust"] == {
        "weight_cap": 1.5,
        "clip_norm": 0.0,
        "clip_factor": 0.0,
        "reducer": "krum",
        "reducer_settings": {"attackers": "2"},
    }
    assert found["exclude_after"] == 4
    plain = settings_document(control_pb2.RunSettings())
    assert (plain["asynchronous"], plain["robust"], plain["exclude_after"]) == (None, None, 0)
