"""Files of encoded models: round trips, agreement with other programs, and invalid files."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pyarrow
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from moonfed.blobs.compression import zstd
from moonfed.blobs.encoded_models import SLICE, decode_model, encode_model, largest_file
from moonfed.blobs.schema import INT8
from moonfed.blobs.tensors import TensorSpec, file_size, model_size, open_model, split, write_model
from moonfed.encodings import Encoding, Encodings, parse_encoding
from moonfed.encodings.int8 import Int8
from moonfed.encodings.number_format import Floats, NumberFormat
from moonfed.encodings.rotated import Rotated1, Rotated4
from moonfed.errors import InvalidInput, MoonfedError, SchemaMismatch
from tests.support.number_formats import KNOWN, LARGEST_BFLOAT16, finite, quantise, restore, round_trip
from tests.support.refusals import refused

SPECS = (
    TensorSpec("a.bias", (3,), "parameter"),
    TensorSpec("a.weight", (5, 100), "parameter"),
    TensorSpec("b.empty", (0, 4), "parameter"),
    TensorSpec("norm.mean", (7,), "statistic"),
    TensorSpec("norm.var", (7,), "statistic"),
    TensorSpec("z.scale", (), "parameter"),
)
PARAMETERS = tuple(spec for spec in SPECS if spec.kind == "parameter")
SIZE = model_size(SPECS)
ROTATED = {"rotated4": Rotated4(), "rotated1": Rotated1()}
MOST_ERROR = {"bfloat16": 0.01 / 2**6, "int8": 0.01 / 2**6, "rotated4": 0.01, "rotated1": 0.1}
LOSSY = [name for name in KNOWN if not name.startswith("float32")]
CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4)  # place, byte


def model(path: Path, values: Floats, specs: tuple[TensorSpec, ...] = SPECS) -> Path:
    write_model(path, specs, [values])
    return path


def random_model(path: Path, seed: int = 0, deviation: float = 1.0, specs: tuple[TensorSpec, ...] = SPECS) -> Path:
    values = np.random.default_rng(seed).normal(0, deviation, model_size(specs)).astype(np.float32)
    return model(path, values, specs)


@pytest.mark.parametrize("name", KNOWN)
@given(values=arrays(np.float32, SIZE, elements=finite))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_encoded_model_is_decoded_within_its_precision(name: str, values: Floats, tmp_path: Path) -> None:
    encoding = parse_encoding("encoding", name)
    encode_model(model(tmp_path / "model", values), tmp_path / "encoded", SPECS, encoding)
    decode_model(tmp_path / "encoded", tmp_path / "decoded", SPECS, encoding)
    before, after = split(values, SPECS), split(open_model(tmp_path / "decoded", SPECS), SPECS)
    for spec in SPECS:
        expected = before[spec.name].ravel()
        if encoding.number == "bfloat16" or (encoding.lossy and spec.kind == "statistic"):
            expected = np.clip(expected, -LARGEST_BFLOAT16, LARGEST_BFLOAT16).astype(ml_dtypes.bfloat16).astype("f4")
        elif encoding.number in ROTATED and spec.size >= 256:
            expected = round_trip(ROTATED[encoding.number], expected)
        elif encoding.lossy:
            expected = restore(*quantise(expected, INT8))
        assert np.array_equal(after[spec.name].ravel(), expected), spec.name
    assert (tmp_path / "encoded").stat().st_size <= largest_file(SPECS, encoding)


@pytest.mark.parametrize("name", KNOWN)
def test_the_same_model_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    encoding = parse_encoding("encoding", name)
    source = random_model(tmp_path / "model")
    encode_model(source, tmp_path / "one", SPECS, encoding)
    encode_model(source, tmp_path / "two", SPECS, encoding)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "one", "two"]


def test_other_programs_read_our_files(tmp_path: Path) -> None:
    source = random_model(tmp_path / "model")
    encode_model(source, tmp_path / "int8+zstd", SPECS, Encoding("int8", compressed=True))
    content = (tmp_path / "int8+zstd").read_bytes()
    size = zstd.get_frame_info(content).decompressed_size
    tensors = safetensors.torch.load(pyarrow.decompress(content, size, codec="zstd", asbytes=True))
    weight = split(open_model(source, SPECS), SPECS)["a.weight"]
    assert tensors["values:a.weight"].dtype == torch.int8
    spread = np.repeat(tensors["scales:a.weight"].numpy(), 256)[:500].reshape(5, 100)
    np.testing.assert_allclose(tensors["values:a.weight"].numpy() * spread, weight, atol=0.02)
    assert tensors["values:norm.var"].dtype == torch.bfloat16
    encode_model(source, tmp_path / "bfloat16", SPECS, Encoding("bfloat16"))
    halves = safetensors.torch.load_file(tmp_path / "bfloat16")
    assert torch.equal(halves["a.weight"], torch.from_numpy(np.array(weight)).bfloat16())


@pytest.mark.parametrize("number_format", [Int8(), Rotated4(), Rotated1()])
@pytest.mark.parametrize("rest", [1, 255, 256, 1003])
def test_encoding_a_tensor_in_pieces_equals_encoding_it_whole(
    number_format: NumberFormat, rest: int, tmp_path: Path
) -> None:
    specs = (TensorSpec("w", (SLICE + rest,), "parameter"), TensorSpec("x", (2 * SLICE,), "parameter"))
    source = random_model(tmp_path / "model", specs=specs)
    encode_model(source, tmp_path / "encoded", specs, Encoding(number_format.name))
    decode_model(tmp_path / "encoded", tmp_path / "decoded", specs, Encoding(number_format.name))
    found = split(open_model(tmp_path / "decoded", specs), specs)
    for name, values in split(open_model(source, specs), specs).items():
        assert np.array_equal(found[name], round_trip(number_format, np.array(values)))


@pytest.mark.parametrize(("number", "most"), [("int8", 0.27), ("rotated4", 0.135), ("rotated1", 0.041)])
def test_bytes_are_at_most_a_share_of_float32s(number: str, most: float, tmp_path: Path) -> None:
    specs = (TensorSpec("bias", (64,), "parameter"), TensorSpec("weight", (640, 100), "parameter"))
    encode_model(random_model(tmp_path / "model", specs=specs), tmp_path / "encoded", specs, Encoding(number))
    assert (tmp_path / "encoded").stat().st_size <= most * file_size(specs)


def test_files_say_which_tensors_are_rotated(tmp_path: Path) -> None:
    """Names, dtypes and shapes are the manifest's alone, so that no file can be read in two ways."""
    encode_model(random_model(tmp_path / "model"), tmp_path / "encoded", SPECS, Encoding("rotated4"))
    tensors = safetensors.torch.load_file(tmp_path / "encoded")
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()} == {
        "scales:a.bias": (torch.float32, (1,)),
        "values:a.bias": (torch.int8, (3,)),
        "scales:a.weight": (torch.float32, (2,)),
        "levels:a.weight": (torch.uint8, (250,)),
        "scales:b.empty": (torch.float32, (0,)),
        "values:b.empty": (torch.int8, (0, 4)),
        "values:norm.mean": (torch.bfloat16, (7,)),
        "values:norm.var": (torch.bfloat16, (7,)),
        "scales:z.scale": (torch.float32, (1,)),
        "values:z.scale": (torch.int8, ()),
    }


@pytest.mark.parametrize(("written", "expected"), [(255, 256), (256, 255), (512, 510), (512, 513)])
def test_a_tensor_of_another_size_is_rejected(written: int, expected: int, tmp_path: Path) -> None:
    found, manifest = ((TensorSpec("w", (size,), "parameter"),) for size in (written, expected))
    encode_model(random_model(tmp_path / "m", specs=found), tmp_path / "e", found, Encoding("rotated4"))
    with pytest.raises(SchemaMismatch):
        decode_model(tmp_path / "e", tmp_path / "d", manifest, Encoding("rotated4"))


@pytest.mark.parametrize("name", ["rotated4", "rotated1"])
def test_bits_after_a_tensors_last_value_are_rejected(name: str, tmp_path: Path) -> None:
    specs = (TensorSpec("w", (511,), "parameter"),)
    encode_model(random_model(tmp_path / "m", specs=specs), tmp_path / "e", specs, Encoding(name))
    content = bytearray((tmp_path / "e").read_bytes())
    content[-1] |= 0x80
    (tmp_path / "e").write_bytes(content)
    with refused(SchemaMismatch, "tensor", "w"):
        decode_model(tmp_path / "e", tmp_path / "d", specs, Encoding(name))


@pytest.mark.parametrize("name", LOSSY)
def test_the_encoding_error_of_a_change_is_added_to_the_next_one(name: str, tmp_path: Path) -> None:
    encoding = parse_encoding("encoding", name)
    begun = random_model(tmp_path / "begun", seed=1)
    w = np.array(open_model(begun, SPECS))
    model(tmp_path / "zero", np.zeros(model_size(PARAMETERS), np.float32), PARAMETERS)
    error, wanted, arrived = tmp_path / "zero", np.zeros(SIZE), np.zeros(SIZE)
    for round_ in range(1, 6):
        y = w + np.random.default_rng(round_).normal(0, 0.01, SIZE).astype(np.float32)
        left = tmp_path / f"error-{round_}"
        model(tmp_path / "y", y)
        encode_model(tmp_path / "y", tmp_path / "up", SPECS, encoding, initial_model=begun, error=error, new_error=left)
        decode_model(tmp_path / "up", tmp_path / "decoded", SPECS, encoding, initial_model=begun)
        wanted += y.astype(np.float64) - w
        arrived += np.array(open_model(tmp_path / "decoded", SPECS)).astype(np.float64) - w
        error = left
    missing, kept = (
        split((wanted - arrived).astype(np.float32), SPECS),
        split(open_model(error, PARAMETERS), PARAMETERS),
    )
    for spec in PARAMETERS:  # all that has not arrived in five rounds is in the error, which is one round's
        np.testing.assert_allclose(missing[spec.name], kept[spec.name], atol=3e-6)
    assert 0 < abs(np.concatenate([values.ravel() for values in kept.values()])).max() < MOST_ERROR[encoding.number]
    for name_ in ("norm.mean", "norm.var"):  # rounded to bfloat16 each time, as they are: nothing adds up
        np.testing.assert_allclose(missing[name_], 0, atol=5 * 0.02)


@pytest.mark.parametrize("name", LOSSY)
def test_a_variance_stays_positive(name: str, tmp_path: Path) -> None:
    """A change rounded to 1/127 of another element's would take a small variance below zero."""
    specs = (TensorSpec("norm.running_var", (2,), "statistic"),)
    begun = model(tmp_path / "begun", np.array([1e-3, 100.0], np.float32), specs)
    trained = model(tmp_path / "trained", np.array([1e-6, 1.0], np.float32), specs)
    encoding = parse_encoding("encoding", name)
    encode_model(trained, tmp_path / "up", specs, encoding, initial_model=begun)
    decode_model(tmp_path / "up", tmp_path / "decoded", specs, encoding, initial_model=begun)
    np.testing.assert_allclose(open_model(tmp_path / "decoded", specs), [1e-6, 1.0], rtol=2**-8)


def test_a_change_that_float32_cannot_hold_is_rejected(tmp_path: Path) -> None:
    begun = model(tmp_path / "begun", np.full(SIZE, -3e38, np.float32))
    trained = model(tmp_path / "trained", np.full(SIZE, 3e38, np.float32))
    with refused(InvalidInput, "tensor", "a.bias"):
        encode_model(trained, tmp_path / "up", SPECS, Encoding("int8"), initial_model=begun)


def change_of(path: Path, begun: Path) -> npt.NDArray[np.float64]:
    """Return the change of the parameters of one float32 model from another."""
    models = [split(open_model(file, SPECS), SPECS) for file in (path, begun)]
    after, before = (
        np.concatenate([found[spec.name].ravel().astype(np.float64) for spec in PARAMETERS]) for found in models
    )
    change: npt.NDArray[np.float64] = after - before
    return change


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("clip_norm", [1e-6, 0.01, 0.5])
def test_a_clipped_change_is_no_longer_than_the_clip(
    clip_norm: float, size: float, changes: bool, tmp_path: Path
) -> None:
    begun = random_model(tmp_path / "begun", seed=1, deviation=size)
    start = np.array(open_model(begun, SPECS))
    trained = model(tmp_path / "trained", start + np.random.default_rng(2).normal(0, 0.1, SIZE).astype(np.float32))
    sent, whole = tmp_path / "sent", tmp_path / "whole"
    encode_model(trained, sent, SPECS, Encoding(), initial_model=begun, changes=changes, clip_norm=clip_norm)
    if changes:
        decode_model(sent, whole, SPECS, Encoding(), initial_model=model(tmp_path / "zero", np.zeros(SIZE, np.float32)))
        change = change_of(whole, tmp_path / "zero")
    else:
        change = change_of(sent, begun)
    assert np.linalg.norm(change) <= clip_norm * (1 + 1e-6)
    if changes or size < 1:  # elsewhere float32 holds few of the numbers between
        wanted = change_of(trained, begun)
        np.testing.assert_allclose(change, wanted * clip_norm / np.linalg.norm(wanted), atol=max(size, 1) * 2**-22)
    statistics = split(open_model(sent, SPECS), SPECS)
    assert np.array_equal(statistics["norm.var"], split(open_model(trained, SPECS), SPECS)["norm.var"])


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("changes", [False, True])
def test_a_change_within_the_clip_is_sent_as_it_is(name: str, changes: bool, tmp_path: Path) -> None:
    encoding = parse_encoding("encoding", name)
    begun, trained = random_model(tmp_path / "begun", seed=1), random_model(tmp_path / "trained", seed=2)
    clip_norm = float(np.linalg.norm(change_of(trained, begun))) * 1.001
    for target, clip in ((tmp_path / "clipped", clip_norm), (tmp_path / "free", 0.0)):
        encode_model(trained, target, SPECS, encoding, initial_model=begun, changes=changes, clip_norm=clip)
    assert (tmp_path / "clipped").read_bytes() == (tmp_path / "free").read_bytes()
    if name == "float32" and not changes:
        assert (tmp_path / "clipped").read_bytes() == trained.read_bytes()


@pytest.mark.parametrize("name", LOSSY)
def test_the_encoding_error_is_clipped_with_the_change_that_it_is_added_to(name: str, tmp_path: Path) -> None:
    encoding, zero = parse_encoding("encoding", name), model(tmp_path / "zero", np.zeros(SIZE, np.float32))
    begun, trained = random_model(tmp_path / "begun", seed=1), random_model(tmp_path / "trained", seed=2)
    error, left = random_model(tmp_path / "error", 3, specs=PARAMETERS), tmp_path / "left"
    files: dict[str, Any] = {"initial_model": begun, "error": error, "new_error": left}
    encode_model(trained, tmp_path / "up", SPECS, encoding, **files, clip_norm=0.5)
    decode_model(tmp_path / "up", tmp_path / "decoded", SPECS, encoding, initial_model=zero)
    encoded = change_of(tmp_path / "decoded", zero) + open_model(left, PARAMETERS)
    wanted = change_of(trained, begun) + open_model(error, PARAMETERS)
    np.testing.assert_allclose(encoded, wanted * 0.5 / np.linalg.norm(wanted), atol=1e-6)


def test_a_change_is_sent_whenever_rounding_a_model_would_lose_something() -> None:
    plain, half, eighth = Encoding(), Encoding("bfloat16"), Encoding("int8", compressed=True)
    assert not Encodings(down=Encoding(compressed=True), up=plain).changes
    assert Encodings(up=half).changes
    assert Encodings(down=eighth).changes
    assert Encodings(down=eighth, up=half).needed == {"bfloat16", "int8+zstd"}
    assert Encodings().needed == frozenset()


def encoded(tmp_path: Path, name: str = "int8") -> Path:
    encode_model(random_model(tmp_path / "model"), tmp_path / "encoded", SPECS, parse_encoding("encoding", name))
    return tmp_path / "encoded"


def decode(file: Path, name: str = "int8") -> None:
    decode_model(file, file.with_name("decoded"), SPECS, parse_encoding("encoding", name))


def with_header(file: Path, old: str, new: str) -> None:
    """Change the header's text and its recorded length."""
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    text = content[8 : 8 + length].decode().replace(old, new)
    file.write_bytes(len(text).to_bytes(8, "little") + text.encode() + content[8 + length :])


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"values:a.bias"', '"values:a.bios"', ("tensor", "values:a.bios")),
        ('"scales:a.bias"', '"values:a.bias"', ("tensor", "values:a.bias")),
        ('"I8","shape":[3]', '"U8","shape":[3]', ("tensor", "values:a.bias")),
        ('"I8","shape":[3]', '"I8","shape":[3,1]', ("tensor", "values:a.bias")),
        ('"F32","shape":[2]', '"F32","shape":[1]', ("tensor", "scales:a.weight")),
        ("[0,4]", "[4,8]", ("tensor", "scales:a.bias")),
    ],
)
def test_a_malformed_header_is_rejected_and_names_the_tensor(
    old: str, new: str, named: tuple[str, object], tmp_path: Path
) -> None:
    file = encoded(tmp_path)
    with_header(file, old, new)
    with refused(SchemaMismatch, *named):
        decode(file)


def test_a_file_of_another_encoding_is_rejected(tmp_path: Path) -> None:
    with refused(SchemaMismatch, "tensor", "a.bias"):
        decode(encoded(tmp_path, "bfloat16"), "int8")
    with refused(SchemaMismatch, "tensor", "a.bias"):
        decode(encoded(tmp_path, "float32"), "bfloat16")
    with refused(InvalidInput, "Zstandard stream"):
        decode(encoded(tmp_path, "int8"), "int8+zstd")
    with pytest.raises(SchemaMismatch, match="the tensor header claims"):
        decode(encoded(tmp_path, "int8+zstd"), "int8")


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0])
def test_an_invalid_scale_is_rejected(scale: float, tmp_path: Path) -> None:
    file = encoded(tmp_path)
    content = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start + 8 : start + 12] = struct.pack("<f", scale)  # after that of a.bias and a.weight's first
    file.write_bytes(content)
    with refused(SchemaMismatch, "tensor", "a.weight"):
        decode(file)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("cut", [1, 20, 300])
def test_a_truncated_or_oversized_file_is_rejected(name: str, cut: int, tmp_path: Path) -> None:
    file = encoded(tmp_path, name)
    content = file.read_bytes()
    for wrong in (content[:-cut], content + bytes(cut)):
        file.write_bytes(wrong)
        with pytest.raises(InvalidInput):
            decode(file, name)


@pytest.mark.parametrize("name", [name for name in KNOWN if name.endswith("+zstd")])
@pytest.mark.parametrize("declared", [True, False])
def test_a_decompression_bomb_stops_at_the_size_that_a_model_has(name: str, declared: bool, tmp_path: Path) -> None:
    """The file has a hundred kilobytes that expand to a gigabyte, declared or not."""
    bomb, piece = tmp_path / "bomb", bytes(1 << 20)
    compressor = zstd.ZstdCompressor()
    compressor.set_pledged_input_size(1 << 30 if declared else None)
    with bomb.open("wb") as file:
        for _ in range(1 << 10):
            file.write(compressor.compress(piece))
        file.write(compressor.flush())
    assert bomb.stat().st_size < 200_000
    limit = file_size(SPECS) + (1 << 16) + 1000
    tracemalloc.start()
    try:
        with refused(InvalidInput, "Zstandard size"):
            decode(bomb, name)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert sum(path.stat().st_size for path in tmp_path.iterdir() if path != bomb) <= limit
    assert not (tmp_path / "decoded.plain").exists()


@pytest.mark.parametrize("name", KNOWN)
@given(changes=CHANGES, tail=st.binary(max_size=8))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_model_or_our_error(
    name: str, changes: list[tuple[int, int]], tail: bytes, tmp_path: Path
) -> None:
    content = bytearray(encoded(tmp_path, name).read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    file = tmp_path / "mutated"
    file.write_bytes(bytes(content) + tail)
    try:
        decode(file, name)
    except MoonfedError as error:
        assert isinstance(error, InvalidInput)  # noqa: PT017 - it need not be raised
    else:
        assert open_model(tmp_path / "decoded", SPECS).size == SIZE


@given(content=st.binary(max_size=300), name=st.sampled_from(KNOWN))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_at_all_pass_for_a_model(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(content)
    with pytest.raises(InvalidInput):
        decode(tmp_path / "bytes", name)


@pytest.mark.parametrize("number", ["int8", "rotated4"])
def test_memory_does_not_grow_with_the_model(number: str, tmp_path: Path) -> None:
    peaks = []
    for size in (1_000_000, 8_000_000):
        specs = (TensorSpec("w", (size,), "parameter"),)
        model(tmp_path / "model", np.zeros(size, np.float32), specs)
        model(tmp_path / "ones", np.ones(size, np.float32), specs)
        tracemalloc.start()
        encoding = Encoding(number, compressed=True)
        before = tmp_path / "model"
        files: dict[str, Any] = {"initial_model": before, "error": before, "new_error": tmp_path / "error"}
        encode_model(tmp_path / "ones", tmp_path / "up", specs, encoding, **files, clip_norm=0.5)
        decode_model(tmp_path / "up", tmp_path / "decoded", specs, encoding, initial_model=tmp_path / "model")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 100_000
    assert peaks[1] < 12_000_000
