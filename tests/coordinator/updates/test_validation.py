"""Checks of a submitted update over real TLS: it is rejected by field or tensor, and the round continues."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from moonfed.blobs.store import BlobRef
from moonfed.blobs.tensors import TensorSpec
from moonfed.errors import InvalidInput, MoonfedError, ResourceExhausted, SchemaMismatch
from moonfed.transport.client import to_message
from moonfed.v1 import blob_pb2
from tests.coordinator.conftest import Fleet, two_devices
from tests.support.coordinator import SIZE, SPECS, model_bytes, model_values


def changed(index: int, **fields: Any) -> tuple[TensorSpec, ...]:
    """The model's tensors with one of them changed."""
    given = {"name": SPECS[index].name, "shape": SPECS[index].shape, "kind": SPECS[index].kind, **fields}
    return (*SPECS[:index], TensorSpec(**given), *SPECS[index + 1 :])


def with_value(value: float, at: int) -> bytes:
    vector = np.ones(SIZE, np.float32)
    vector[at] = value
    return model_bytes(vector)


def as_float16() -> bytes:
    header = {"head.bias": {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * 6


def duplicated() -> bytes:
    content = model_bytes(1.0)
    return content.replace(b'"head.weight"', b'"head.bias"\x20\x20', 1)


BAD = {
    "NaN": (with_value(float("nan"), 0), "tensor 'head.bias' holds NaN"),
    "infinity in a statistic": (with_value(float("inf"), SIZE - 1), "tensor 'norm.running_var' holds NaN or inf"),
    "transposed": (model_bytes(1.0, changed(1, shape=(4, 3))), "tensor 'head.weight' has shape"),
    "broadcastable": (model_bytes(1.0, changed(2, shape=(1,))), "tensor 'norm.running_mean' has shape"),
    "wrong name": (model_bytes(1.0, changed(0, name="head.bios")), "tensor 'head.bios' is not part"),
    "missing": (model_bytes(1.0, SPECS[:3]), "tensor 'norm.running_var' is missing"),
    "extra": (model_bytes(1.0, (*SPECS, TensorSpec("z", (1,), "parameter"))), "tensor 'z' is not part"),
    "twice": (duplicated(), "tensor 'head.bias' appears 2 times"),
    "float16": (as_float16(), "tensor 'head.bias' has dtype 'F16'"),
    "no tensors at all": (b"PK\x03\x04 this is an archive, or a pickle", "tensor header"),
    "empty": (b"", "tensor header"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_update_is_rejected_by_name_and_the_round_continues(fleet: Fleet, kind: str) -> None:
    content, message = BAD[kind]
    devices, sessions = two_devices(fleet)
    work = [one.assignment() for one in sessions]
    watching = fleet.operator.watch("run")
    assert next(watching).kind == "snapshot"
    with pytest.raises(SchemaMismatch, match=message):
        devices[0].submit(work[0], content)
    devices[1].submit(work[1], model_bytes(3.0))
    events = list(watching)
    rejected = next(event for event in events if event.kind == "update_rejected")
    assert rejected.device == "cam-1"
    assert message in rejected.reason
    ended = events[-1].run
    assert ended.status == "finished"
    assert fleet.operator.rounds("run")[0].counted == ["cam-2"]
    assert fleet.operator.rounds("run")[0].missing == ["cam-1"]
    np.testing.assert_array_equal(model_values(fleet.operator.model(ended.model)), np.float32(3.0))


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"samples": 0}, InvalidInput, "samples is 0"),
        ({"samples": 2**63}, InvalidInput, "samples is"),
        ({"steps": 0}, InvalidInput, "steps is 0"),
        ({"metrics": {"loss": float("nan")}}, InvalidInput, "metric 'loss' is nan"),
        (
            {"metrics": {"loss": 1.7e308}},
            InvalidInput,
            r"metric 'loss' is 1\.7e\+308; it must be a number from -1e\+30",
        ),
        ({"metrics": {"holdout_samples": -1.0}}, InvalidInput, r"must be a number from 0 to 1e\+07"),
        ({"metrics": {"holdout_samples": 1e12}}, InvalidInput, "metric 'holdout_samples' is 1000000000000"),
        ({"metrics": {f"m{number}": 1.0 for number in range(65)}}, InvalidInput, "metrics has 65 entries"),
        ({"blobs": {}}, InvalidInput, "blobs is \\[\\]"),
        ({"blobs": {"model": to_message(BlobRef("0" * 64, 10**12))}}, ResourceExhausted, "1000000000000 bytes"),
        (
            {"blobs": {"model": to_message(BlobRef("0" * 64, 9)), "code": to_message(BlobRef("1" * 64, 9))}},
            InvalidInput,
            "\\['code', 'model'\\]",
        ),
    ],
)
def test_an_invalid_header_is_rejected_before_the_bytes(
    fleet: Fleet, fields: dict[str, Any], kind: type[MoonfedError], message: str
) -> None:
    devices, sessions = two_devices(fleet)
    work = [one.assignment() for one in sessions]
    with pytest.raises(kind, match=message):
        devices[0].submit(work[0], model_bytes(1.0), **fields)
    current = fleet.operator.run("run").open_round
    assert current.rejected == ["cam-1"]
    assert re.search(message, current.reasons["cam-1"])


def test_a_malformed_digest_reaches_no_file(fleet: Fleet) -> None:
    devices, sessions = two_devices(fleet)
    blob = blob_pb2.Blob(sha256="../../../../etc/passwd", size=3)
    with pytest.raises(InvalidInput, match="64 lower-case hexadecimal"):
        devices[0].submit(sessions[0].assignment(), b"abc", blobs={"model": blob})
