from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, make_dataclass
from datetime import datetime, timezone
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import NO_TARGET, TargetSpec
from moonfed.control import codec
from moonfed.control.codec import RECORDS, from_message, read_event, to_message
from moonfed.control.document import document
from moonfed.control.events import KINDS
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Round, Run
from moonfed.errors import Corrupt
from moonfed.v1 import control_pb2
from tests.proto.control.test_held_out_score import PIXELS, RMSE, SCORE
from tests.support.refusals import refused

PRICES = TargetSpec(
    kind="values", names=("price", "area"), shape=(3, 2), units=("EUR", ""), mean=(1.0, 2.0), deviation=(0.5, 3.0)
)
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(timezone.utc))
SIMPLE: Mapping[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int: st.integers(0, 2**32 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    datetime: TIMES,
    BlobRef: st.builds(BlobRef, st.from_regex("[0-9a-f]{64}", fullmatch=True), st.integers(0, 2**63)),
    HeldOutScore: st.sampled_from([SCORE, RMSE, PIXELS]),
    Metric: st.sampled_from([SCORE.metric, RMSE.metric]),
    TargetSpec: st.sampled_from([NO_TARGET, PRICES]),
    RunSettings: st.builds(
        RunSettings, rounds=st.integers(1, 1000), cohort=st.sampled_from([Amount(count=3), Amount(fraction=0.5)])
    ),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if origin in (Union, UnionType):
        return st.none() | values(next(one for one in arguments if one is not NoneType))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(SIMPLE[str], values(arguments[1]), max_size=2)
    hints = get_type_hints(hint)
    return st.builds(hint, **{field.name: values(hints[field.name]) for field in fields(hint) if field.init})


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_a_record_comes_back_from_its_message(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(values(kind))
    message = to_message(Message, record)
    sent = type(message).FromString(message.SerializeToString())
    assert from_message(kind, sent) == record


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@settings(max_examples=20)
@given(data=st.data())
def test_an_event_comes_back_from_its_message(kind: type[Any], data: st.DataObject) -> None:
    event = data.draw(values(kind))
    sent = to_message(control_pb2.RunEvent, event).SerializeToString()
    assert read_event(control_pb2.RunEvent.FromString(sent)) == event


def check(value: Any, shown: Any) -> None:
    """Check that a document shows a value."""
    if isinstance(value, datetime):
        assert datetime.fromisoformat(shown.replace("Z", "+00:00")) == value.replace(microsecond=0)
    elif is_dataclass(value) and not isinstance(value, HeldOutScore | RunSettings):
        for field in fields(value):
            check(getattr(value, field.name), shown[field.name])
    elif isinstance(value, tuple):
        for one, other in zip(value, shown, strict=True):
            check(one, other)


@pytest.mark.parametrize("kind", [*RECORDS, *KINDS.values()], ids=lambda kind: kind.__name__)
@settings(max_examples=20)
@given(data=st.data())
def test_a_record_is_a_document_of_finite_json_with_iso_times(kind: type[Any], data: st.DataObject) -> None:
    record = data.draw(values(kind))
    shown = document(record)
    check(record, json.loads(json.dumps(shown, allow_nan=False)))
    assert shown.get("event") == {kind: name for name, kind in KINDS.items()}.get(kind)


def test_an_event_of_a_later_release_is_left_out() -> None:
    assert read_event(control_pb2.RunEvent(kind="moon_landed")) is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"status": "done"}, "status"),
        ({"status": "running", "created": float("nan")}, "created"),
        ({"status": "running", "created": float("inf")}, "created"),
        ({"status": "running", "created": -1.0}, "created"),
        ({"status": "running"}, "model"),
    ],
    ids=["word", "nan", "infinity", "before-1970", "no-model"],
)
def test_a_malformed_reply_is_reported_with_its_field(fields: dict[str, Any], field: str) -> None:
    with refused(Corrupt, f"Run.{field}"):
        from_message(Run, control_pb2.Run(run="digits", metric=control_pb2.Metric(name="rmse"), **fields))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("colour", str),
        ("reason", float),
        ("reason", str | None),
        ("counted", str),
        ("model", Run | None),
        ("time", datetime),
    ],
    ids=["unknown", "type", "presence", "repeated", "message", "unknown-time"],
)
def test_a_record_that_differs_from_its_message_is_an_error(name: str, hint: type) -> None:
    known = get_type_hints(Round)
    hints = {field.name: known[field.name] for field in fields(Round) if field.init} | {name: hint}
    kind = make_dataclass("Round", list(hints.items()))
    with pytest.raises(TypeError, match=name):
        codec._fields(kind, control_pb2.Round)


def test_a_message_with_another_field_is_an_error() -> None:
    kind = make_dataclass("Incident", [("device", str)])
    with pytest.raises(TypeError, match="description"):
        codec._register(kind)
