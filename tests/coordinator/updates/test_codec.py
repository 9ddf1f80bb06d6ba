"""Encoded models over the wire: downloads, uploads and rejections.

Encoded files are written here by hand, from the format's description; nothing of moonfed's writer is used.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from moonfed.blobs.compression import zstd
from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import Vector
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.updates import codec
from moonfed.errors import AlreadyExists, InvalidInput, ResourceExhausted, SchemaMismatch
from moonfed.transport import client as transport
from moonfed.transport.identity import load_identity
from moonfed.v1 import blob_pb2, fleet_pb2
from tests.coordinator.conftest import Fleet, fleet_in
from tests.support.coordinator import SIZE, Device, DeviceSession, make_bundle, model_bytes, model_values
from tests.support.refusals import refused

Until = Callable[[Callable[[], bool]], None]
ALL = ["float32", "float32+zstd", "bfloat16", "bfloat16+zstd", "int8", "int8+zstd"]
BIAS, WEIGHT = [100, -100, 7], list(range(-6, 6))
MEAN, VARIANCE = [1.0, -2.0, 0.5, 3.0], [0.25, 1.0, 2.0, 4.0]


def file_bytes(entries: Sequence[tuple[str, str, list[int], bytes]]) -> bytes:
    """A safetensors file: name, dtype, shape and bytes of each tensor."""
    header, offset = {}, 0
    for name, dtype, shape, content in entries:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(content for *_, content in entries)


def bfloat16s(values: Sequence[float]) -> bytes:
    return torch.tensor(values).bfloat16().view(torch.int16).numpy().tobytes()


def int8_file(scale: float, bias: Sequence[int] = BIAS, variance: Sequence[float] = VARIANCE) -> bytes:
    """A change of the parameters, one scale for each tensor, and the statistics."""
    floats = np.array([scale], "<f4").tobytes()
    return file_bytes(
        [
            ("scales:head.bias", "F32", [1], floats),
            ("scales:head.weight", "F32", [1], floats),
            ("values:norm.running_mean", "BF16", [4], bfloat16s(MEAN)),
            ("values:norm.running_var", "BF16", [4], bfloat16s(variance)),
            ("values:head.bias", "I8", [3], np.array(bias, "i1").tobytes()),
            ("values:head.weight", "I8", [3, 4], np.array(WEIGHT, "i1").tobytes()),
        ]
    )


def expected(initial_model: Vector, scale: float) -> Vector:
    """Decode an update: w plus the change, and the statistics unchanged."""
    change = scale * np.array([*BIAS, *WEIGHT])
    return np.concatenate([initial_model[:15] + change, MEAN, VARIANCE])


def connect(fleet: Fleet, name: str) -> tuple[Device, DeviceSession]:
    device = fleet.device(name)
    return device, device.connect(encodings=ALL)


def known_device(fleet: Fleet, name: str) -> Device:
    """Return a device that enrolled before the coordinator was restarted."""
    channel = transport.open_channel(f"127.0.0.1:{fleet.ports.fleet}", load_identity(fleet.tmp / name))
    return Device(name, fleet.stack.enter_context(channel))


def start_values() -> Vector:
    return np.random.default_rng(3).normal(size=SIZE).astype(np.float32)


def fetched(device: Device, work: fleet_pb2.Assignment) -> bytes:
    request = blob_pb2.FetchRequest(device=device.name, sha256=work.blobs["model"].sha256)
    return b"".join(chunk.data for chunk in device.fleet.Fetch(request))


def tensors_of(content: bytes) -> torch.Tensor:
    return torch.cat([tensor.ravel() for _, tensor in sorted(load(content).items())])


def committed(fleet: Fleet, until: Until, rounds: int = 1) -> Vector:
    until(lambda: fleet.operator.run("run").round == rounds)
    return model_values(fleet.operator.model(fleet.operator.run("run").model))


@pytest.mark.parametrize("encoding", ["int8", "int8+zstd"])
def test_changes_in_int8_are_added_to_the_model_that_the_round_began_with(
    encoding: str, fleet: Fleet, until: Until
) -> None:
    start = start_values()
    fleet.start("run", bundle=make_bundle(start=start), uplink_encoding=encoding, minimum_devices=2)
    contents = {"cam-1": int8_file(0.5), "cam-2": int8_file(0.25)}
    devices = {name: connect(fleet, name) for name in contents}
    works = {name: stream.assignment() for name, (_, stream) in devices.items()}
    for name, (device, _) in devices.items():
        work, content = works[name], contents[name]
        assert fetched(device, work) == model_bytes(start), "nothing is encoded on its way down"
        if encoding.endswith("zstd"):
            content = zstd.compress(content)
        replies = device.submit(work, content, encoding=encoding)
        assert replies[-1].receipt.sha256["model"] == ref_of_bytes(content).sha256
        if name == "cam-1":
            assert device.submit(work, content, encoding=encoding)[-1].receipt == replies[-1].receipt
            files = [path for path in (fleet.state / "spool").rglob("*") if path.is_file()]
            assert [path.stat().st_size for path in files] == [len(model_bytes(0.0))], "the encoded file is gone"
            with pytest.raises(AlreadyExists):
                device.submit(work, int8_file(2.0), encoding=encoding)
    found = committed(fleet, until)
    np.testing.assert_allclose(found, (expected(start, 0.5) + expected(start, 0.25)) / 2, rtol=1e-6)


def test_a_model_may_be_sent_whole_and_compressed(fleet: Fleet, until: Until) -> None:
    fleet.start("run", uplink_encoding="float32+zstd", downlink_encoding="float32+zstd")
    device, stream = connect(fleet, "cam-1")
    work = stream.assignment()
    assert zstd.decompress(fetched(device, work)) == model_bytes(0.0)
    trained = start_values()
    device.submit(work, zstd.compress(model_bytes(trained)), encoding="float32+zstd")
    assert np.array_equal(committed(fleet, until), trained)


def test_the_rounding_error_of_downloads_is_not_lost(fleet: Fleet, until: Until) -> None:
    """Devices start from the rounded model; their changes, here in float32, are added to the exact one."""
    start = start_values()
    fleet.start("run", rounds=2, bundle=make_bundle(start=start), downlink_encoding="bfloat16")
    device, stream = connect(fleet, "cam-1")
    work = stream.assignment()
    assert (work.downlink_encoding, work.uplink_encoding) == ("bfloat16", "float32")
    assert torch.equal(tensors_of(fetched(device, work)), torch.tensor(start).bfloat16())
    change = np.full(SIZE, 2.0**-12, np.float32)  # less than bfloat16 would notice
    change[15:] = [*MEAN, *VARIANCE]
    device.submit(work, model_bytes(change), encoding="float32")
    np.testing.assert_allclose(committed(fleet, until)[:15], start[:15] + 2.0**-12, rtol=1e-6)
    second = tensors_of(fetched(device, stream.assignment()))
    assert torch.equal(second, torch.tensor(committed(fleet, until)).bfloat16())


def test_a_restarted_coordinator_serves_the_same_encoded_model_and_decodes_as_before(
    tmp_path: Path, until: Until
) -> None:
    start = start_values()
    with fleet_in(tmp_path) as fleet:
        options = {"uplink_encoding": "int8", "downlink_encoding": "int8+zstd"}
        fleet.start("run", rounds=2, bundle=make_bundle(start=start), **options)
        device, stream = connect(fleet, "cam-1")
        before = stream.assignment()
    with fleet_in(tmp_path) as fleet:
        device = known_device(fleet, "cam-1")
        stream = device.connect(encodings=ALL)
        work = stream.assignment()
        assert work == before
        tensors = load(zstd.decompress(fetched(device, work)))
        weights = tensors["values:head.weight"].float() * tensors["scales:head.weight"]
        np.testing.assert_allclose(weights.ravel(), start[3:15], atol=float(tensors["scales:head.weight"]) / 2 * 1.001)
        device.submit(work, int8_file(0.5), encoding="int8")
        after_one = committed(fleet, until)
        np.testing.assert_allclose(after_one, expected(start, 0.5), rtol=1e-6)
        assert stream.assignment().counted_round == 1, "devices are told what counted: they keep what was lost of it"
    with fleet_in(tmp_path) as fleet:
        device = known_device(fleet, "cam-1")
        work = device.connect(encodings=ALL).assignment()
        assert (work.round, work.counted_round, work.counted_attempt) == (2, 1, 1)
        device.submit(work, int8_file(0.125), encoding="int8")
        np.testing.assert_allclose(committed(fleet, until, 2), expected(after_one, 0.125), rtol=1e-5)


def test_a_decoded_update_that_is_damaged_on_the_disk_does_not_count(fleet: Fleet, until: Until) -> None:
    """An update is acknowledged by the digest of its encoded file, but its decoded file has a digest of its own."""
    fleet.start("run", uplink_encoding="int8", minimum_devices=2, quorum=1)
    devices = {name: connect(fleet, name) for name in ("cam-1", "cam-2")}
    works = {name: stream.assignment() for name, (_, stream) in devices.items()}
    devices["cam-1"][0].submit(works["cam-1"], int8_file(0.5), encoding="int8")
    (spooled,) = (fleet.state / "spool").rglob("model/*")
    spooled.write_bytes(spooled.read_bytes()[:-1] + b"?")
    devices["cam-2"][0].submit(works["cam-2"], int8_file(0.25), encoding="int8")
    np.testing.assert_allclose(committed(fleet, until), expected(np.zeros(SIZE, np.float32), 0.25), rtol=1e-6)
    assert fleet.operator.rounds("run")[0].counted == ["cam-2"]


BOMB = zstd.compress(bytes(1 << 28))


@pytest.mark.parametrize(
    ("encoding", "content", "error", "message"),
    [
        ("int8", int8_file(float("nan")), SchemaMismatch, r"tensor 'head\.bias' has a"),
        ("int8", int8_file(3e38), SchemaMismatch, r"tensor 'head\.bias' holds NaN or infinite values"),
        ("int8", int8_file(0.5, variance=[1.0, float("inf"), 1.0, 1.0]), SchemaMismatch, r"tensor 'norm\.running_var'"),
        ("int8", model_bytes(1.0), SchemaMismatch, r"tensor 'head\.bias' is"),
        ("int8", int8_file(0.5)[:-1], SchemaMismatch, r"the file has \d+ bytes; its header specifies \d+"),
        ("int8+zstd", int8_file(0.5), InvalidInput, "valid Zstandard stream"),
        ("int8+zstd", BOMB, InvalidInput, "compressed file expands"),
        ("bfloat16", int8_file(0.5), SchemaMismatch, r"tensor 'scales:head\.bias' is not part of the model"),
    ],
)
def test_an_invalid_encoded_model_is_rejected_and_the_round_continues(
    encoding: str, content: bytes, error: type[Exception], message: str, fleet: Fleet, until: Until
) -> None:
    fleet.start("run", uplink_encoding=encoding, minimum_devices=2)
    devices = {name: connect(fleet, name) for name in ("cam-1", "cam-2")}
    works = {name: stream.assignment() for name, (_, stream) in devices.items()}
    with pytest.raises(error, match=message):
        devices["cam-1"][0].submit(works["cam-1"], content, encoding=encoding)
    until(lambda: list(fleet.operator.run("run").open_round.rejected) == ["cam-1"])
    spool = fleet.state / "spool"
    assert sum(path.stat().st_size for path in spool.rglob("*") if path.is_file()) < 2 * len(model_bytes(0.0)) + 70_000
    good = {"int8": int8_file(0.5), "int8+zstd": zstd.compress(int8_file(0.5))}.get(encoding)
    if good:
        devices["cam-2"][0].submit(works["cam-2"], good, encoding=encoding)
        np.testing.assert_allclose(committed(fleet, until), expected(np.zeros(SIZE, np.float32), 0.5), rtol=1e-6)


def test_an_update_in_another_encoding_than_the_runs_is_rejected(fleet: Fleet) -> None:
    fleet.start("run", uplink_encoding="int8")
    device, stream = connect(fleet, "cam-1")
    with refused(InvalidInput, "encoding", "float32"):
        device.submit(stream.assignment(), model_bytes(1.0))


@pytest.mark.parametrize("encoding", ["int8", "int8+zstd", "bfloat16"])
def test_more_bytes_than_an_encoding_can_have_are_rejected_before_they_are_sent(encoding: str, fleet: Fleet) -> None:
    fleet.start("run", uplink_encoding=encoding)
    device, stream = connect(fleet, "cam-1")
    with pytest.raises(ResourceExhausted, match=r"the update's model has 70000 bytes; 6\d\d\d\d are allowed"):
        device.submit(stream.assignment(), bytes(70_000), encoding=encoding)


def test_a_device_without_encodings_participates_in_a_float32_run(fleet: Fleet, until: Until) -> None:
    fleet.start("run")
    device = fleet.device("cam-1")
    work = device.connect().assignment()
    assert fetched(device, work) == model_bytes(0.0)
    trained = start_values()
    device.submit(work, model_bytes(trained))
    assert np.array_equal(committed(fleet, until), trained)


def test_an_update_needs_space_for_its_decoded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(DiskBudget, "require", lambda _, room: asked.append(room))
    with fleet_in(tmp_path, disk_budget=10**9) as fleet:
        fleet.start("run", uplink_encoding="int8")
        device, stream = connect(fleet, "cam-1")
        work = stream.assignment()
        asked.clear()
        device.submit(work, int8_file(0.5), encoding="int8")
    assert asked == [len(int8_file(0.5)) + len(model_bytes(0.0))]


@pytest.mark.parametrize(("place", "name"), [(codec, "decode_model"), (codec, "sync_file"), (Spool, "put")])
def test_a_disk_that_is_full_while_decoding_rejects_nobody(
    place: object, name: str, fleet: Fleet, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same update counts when there is room again."""
    fleet.start("run", uplink_encoding="int8+zstd")
    device, stream = connect(fleet, "cam-1")
    work, content = stream.assignment(), zstd.compress(int8_file(0.5))

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(place, name, full)
        with pytest.raises(ResourceExhausted, match=r"disk is full$"):
            device.submit(work, content, encoding="int8+zstd")
    assert list(fleet.operator.run("run").open_round.rejected) == []
    device.submit(work, content, encoding="int8+zstd")
    np.testing.assert_allclose(committed(fleet, until), expected(np.zeros(SIZE, np.float32), 0.5), rtol=1e-6)


def test_a_change_that_comes_late_to_an_asynchronous_run_is_of_the_model_that_it_began_with(
    fleet: Fleet, until: Until
) -> None:
    """FedBuff weighs an update that is one model old by 1/√2."""
    start = start_values()
    options = {"uplink_encoding": "int8", "downlink_encoding": "bfloat16", "asynchronous": 1, "max_staleness": 5}
    fleet.start("run", rounds=2, minimum_devices=2, bundle=make_bundle(start=start), **options)
    devices = {name: connect(fleet, name) for name in ("cam-1", "cam-2")}
    works = {name: stream.assignment() for name, (_, stream) in devices.items()}
    assert [work.round for work in works.values()] == [1, 1]
    devices["cam-1"][0].submit(works["cam-1"], int8_file(0.5), encoding="int8")
    first = committed(fleet, until)
    np.testing.assert_allclose(first, expected(start, 0.5), rtol=1e-6)
    devices["cam-2"][0].submit(works["cam-2"], int8_file(0.25), encoding="int8")
    stale = expected(np.zeros(SIZE, np.float32), 0.25)
    moved = np.concatenate([first[:15] + stale[:15] / 2**0.5, first[15:] + (stale[15:] - first[15:]) / 2**0.5])
    np.testing.assert_allclose(committed(fleet, until, 2), moved, rtol=1e-5)
