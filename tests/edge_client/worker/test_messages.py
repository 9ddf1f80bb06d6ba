"""The lines between the agent and its children."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from moonfed.edge_client.worker.messages import SampleCounts, WorkerSettings
from moonfed.sandbox.messages import decode, encode


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("stop", {}),
        ("progress", {"fraction": 0.25, "epoch": 2, "loss": None}),
        ("log", {"level": 30, "text": 'two\nlines, \u2028 and a "quote"'}),
        ("train", {"samples": asdict(SampleCounts(samples=5, held_out=1, version=2, classes=[0, 2])), "other_work": 3}),
    ],
)
def test_a_message_is_one_line_whatever_it_says(kind: str, fields: dict[str, object]) -> None:
    line = encode(kind, **fields)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == (kind, fields)


@pytest.mark.parametrize(
    ("line", "error"), [(b"{", ValueError), (b"\n", ValueError), (b'{"text": "no kind"}', KeyError)]
)
def test_a_line_that_is_no_message_raises_what_the_agent_expects(line: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode(line)


def test_settings_reach_a_child_as_json() -> None:
    settings = WorkerSettings(
        state="/var/lib/moonfed",
        device="cam-1",
        data="a:load",
        accelerator="cpu",
        holdout=0.1,
        labels={"site": "berlin"},
        ignored_folders=["raw"],
        plan_interfaces=["graph/1"],
    )
    assert WorkerSettings(**json.loads(json.dumps(asdict(settings)))) == settings
