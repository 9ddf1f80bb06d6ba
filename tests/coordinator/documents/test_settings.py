"""A run's settings as JSON."""

from __future__ import annotations

from moonfed.coordinator.documents.settings import settings_document
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
