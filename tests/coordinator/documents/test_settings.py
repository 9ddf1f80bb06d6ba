"""A run's settings as JSON."""

from __future__ import annotations

import pytest

from moonfed.client.convert.settings import run_settings
from moonfed.coordinator.documents.settings import settings_document
from moonfed.coordinator.rounds.settings import parse_amount
from moonfed.v1 import control_pb2


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


@pytest.mark.parametrize(
    ("part", "total"),
    [
        pytest.param(2, 3, id="two thirds"),
        pytest.param(1, 7, id="a seventh"),
        pytest.param(29, 200, id="14.5 percent"),
        pytest.param(2_000, 3_000, id="of many"),
        pytest.param(666_666, 999_999, id="of the most"),
    ],
)
def test_a_share_that_is_given_back_draws_as_many_devices(part: int, total: int) -> None:
    fraction = control_pb2.Amount(fraction=part / total)
    message = control_pb2.RunSettings(cohort=fraction, quorum=fraction)
    for text in (settings_document(message)["cohort"], run_settings(message)["quorum"]):
        given = parse_amount("cohort", str(text))
        assert given.of(total) == part
        assert str(given) == text
