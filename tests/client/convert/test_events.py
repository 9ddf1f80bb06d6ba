"""Events of a run: every kind has its class, and an unknown one is ignored."""

from __future__ import annotations

from typing import get_args

import pytest

from moonfed.client import Event, Interrupted, Run
from moonfed.client.convert.events import event
from moonfed.v1 import control_pb2

KINDS = [kind for kind in control_pb2.EventKind.values() if kind]
MESSAGE = control_pb2.RunEvent(
    round=3,
    attempt=2,
    device="cam-1",
    devices=["cam-2"],
    reason="a reason",
    metrics={"loss": 0.5},
    fraction=0.25,
    run=control_pb2.Run(run="r"),
    pending=4,
    reused=["cam-3"],
)
EXPECTED = {
    "round": 3,
    "attempt": 2,
    "device": "cam-1",
    "devices": ("cam-2",),
    "cohort": ("cam-2",),
    "counted": ("cam-2",),
    "missing": ("cam-2",),
    "reused": ("cam-3",),
    "reason": "a reason",
    "incidents": "a reason",
    "metrics": {"loss": 0.5},
    "fraction": 0.25,
    "pending": 4,
    "model": "",
}


@pytest.mark.parametrize("kind", KINDS, ids=control_pb2.EventKind.Name)
def test_every_kind_has_its_class(kind: control_pb2.EventKind.ValueType) -> None:
    message = control_pb2.RunEvent()
    message.CopyFrom(MESSAGE)
    message.kind = kind
    found = event(message)
    assert found is not None
    for name in found.__dataclass_fields__:
        value = getattr(found, name)
        assert value.run == "r" if isinstance(value, Run) else value == EXPECTED[name], name


def test_the_union_has_all_classes() -> None:
    found = {type(event(control_pb2.RunEvent(kind=kind))) for kind in KINDS}
    assert found | {Interrupted} == set(get_args(Event))
    assert len(found) == len(KINDS)


def test_an_event_of_a_newer_coordinator_is_ignored() -> None:
    assert event(control_pb2.RunEvent()) is None
