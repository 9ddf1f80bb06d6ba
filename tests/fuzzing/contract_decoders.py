"""Decoders of files that bundles, devices and operators exchange."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Sequence
from datetime import timedelta
from functools import cache

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding as CertificateEncoding

from moonfed.blobs.compression import compress, decompress
from moonfed.blobs.encoded_models import decode_model, encode_model
from moonfed.blobs.tensors import TensorSpec, model_size, open_model, require_finite
from moonfed.bundle.files import read_bundle
from moonfed.bundle.manifest import CLASS_MEANS, MODEL, InputSpec, Manifest
from moonfed.bundle.target import class_target
from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.updates.validation import check_files
from moonfed.data.npz import NpzSource
from moonfed.data.source import IF_PRESENT, IGNORED
from moonfed.data.table import TableSource
from moonfed.encodings import known_encodings, parse_encoding
from moonfed.plan.inspection.graph import require_self_contained
from moonfed.transport.identity import new_key, signing_request
from moonfed.transport.join_token import PREFIX, JoinToken, parse_token
from tests.fuzzing import scratch
from tests.fuzzing.decoder import Decoder
from tests.support import coordinator, tables

SPEC = InputSpec(kind="features", shape=(4,))
CLASSES = ("a", "b", "c")
ENCODED_SPECS = (  # the first is rotated, if the encoding rotates
    TensorSpec("head.weight", (259,), "parameter"),
    TensorSpec("norm.running_mean", (2,), "statistic"),
    TensorSpec("tail.bias", (3,), "parameter"),
)
LIMIT = 1 << 16  # bytes that a decompressed file may have


@cache
def _bundles() -> tuple[bytes, ...]:
    found = []
    for number, fields in enumerate(({}, coordinator.SCAFFOLD, {"uplink": {CLASS_MEANS: coordinator.CLASS_MEANS}})):
        path = scratch.directory() / f"bundle-{number}.zip"
        coordinator.bundle_directory(path, **fields)
        found.append(path.read_bytes())
    return tuple(found)


def _manifests() -> list[bytes]:
    return [
        coordinator.make_bundle(**fields).manifest.to_bytes()
        for fields in ({}, coordinator.SCAFFOLD, {"input": tables.INPUT})
    ]


def _deflated_bundle() -> bytes:
    output = io.BytesIO()
    bundle = coordinator.make_bundle()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in bundle.contents.items():
            archive.writestr(name, content)
    return output.getvalue()


def _read_npz(content: bytes) -> None:
    path = scratch.file(content, "samples.npz")
    NpzSource(path).read(SPEC, class_target(CLASSES), labels=IF_PRESENT)
    NpzSource(path).read(SPEC, class_target(CLASSES), labels=IGNORED)


def _read_csv(content: bytes) -> None:
    TableSource(scratch.file(content, "rows.csv")).read(tables.INPUT, class_target(tables.CLASSES))


def _arrays() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return {"inputs": np.arange(8, dtype=np.float32).reshape(2, 4), "labels": np.array([0, 2])}


def _npz_seeds() -> list[bytes]:
    stored, compressed = io.BytesIO(), io.BytesIO()
    np.savez(stored, **_arrays())  # type: ignore[arg-type]
    np.savez_compressed(compressed, **_arrays())  # type: ignore[arg-type]
    return [stored.getvalue(), compressed.getvalue()]


def _npy_seeds() -> list[bytes]:
    found = []
    for array in (_arrays()["inputs"], np.zeros((0, 4)), np.zeros((1, 4), np.float16)):
        output = io.BytesIO()
        np.save(output, array)
        found.append(output.getvalue())
    return found


def _read_npy(content: bytes) -> None:
    """Read an array within an archive whose checksums are right."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as archive:
        archive.writestr("inputs.npy", content)
    NpzSource(scratch.file(output.getvalue(), "array.npz")).read(SPEC, class_target(CLASSES), labels=IGNORED)


def _read_model(content: bytes) -> None:
    require_finite(open_model(scratch.file(content, "model"), coordinator.SPECS), coordinator.SPECS)


def _model_seeds() -> list[bytes]:
    return [coordinator.model_bytes(1.0)]


@cache
def _prototype_bundle() -> Manifest:
    return coordinator.make_bundle(uplink={CLASS_MEANS: coordinator.CLASS_MEANS}).manifest


def _read_class_means(content: bytes) -> None:
    files = {MODEL: scratch.file(coordinator.model_bytes(1.0), "model"), CLASS_MEANS: scratch.file(content, "means")}
    check_files(files, _prototype_bundle())


def _class_means_seeds() -> list[bytes]:
    return [coordinator.model_bytes(1.0, coordinator.CLASS_MEANS)]


def _read_encoded_model(content: bytes) -> None:
    """Decode an update's model; the first byte selects the encoding."""
    known = known_encodings()
    encoding = parse_encoding("encoding", known[content[0] % len(known)] if content else "")
    base = scratch.file(coordinator.model_bytes(0.5, ENCODED_SPECS), "base")
    source, target = scratch.file(content[1:], "encoded"), scratch.directory() / "decoded"
    decode_model(source, target, ENCODED_SPECS, encoding, initial_model=base)


def _encoded_seeds() -> list[bytes]:
    values = np.linspace(-1, 1, model_size(ENCODED_SPECS)).astype(np.float32)
    model = scratch.file(coordinator.model_bytes(values, ENCODED_SPECS), "model")
    target = scratch.directory() / "encoded"
    found = []
    for number, name in enumerate(known_encodings()):
        encode_model(model, target, ENCODED_SPECS, parse_encoding("encoding", name))
        found.append(bytes([number]) + target.read_bytes())
    return found


def _decompress(content: bytes) -> None:
    decompress(scratch.file(content, "compressed"), scratch.directory() / "plain", LIMIT)


def _compressed_seeds() -> list[bytes]:
    found = []
    for plain in (b"moonfed " * 100, bytes(range(256)), b""):
        target = scratch.directory() / "compressed"
        compress(scratch.file(plain, "plain"), target)
        found.append(target.read_bytes())
    return found


@cache
def _authority() -> Authority:
    return Authority(scratch.directory() / "authority")


def _token() -> str:
    return str(JoinToken(address="here:1", ca=_authority().ca, secret="s"))


def _read_token(content: bytes) -> None:
    parse_token(content.decode("utf-8", "surrogateescape"))


def _read_token_fields(content: bytes) -> None:
    """Read a token whose encoding is right."""
    parse_token(PREFIX + base64.urlsafe_b64encode(content).decode())


def _token_fields() -> list[bytes]:
    return [json.dumps({"address": "here:1", "ca": _authority().ca.decode(), "secret": "s"}).encode()]


def _pem(label: str, content: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(content).decode()}-----END {label}-----\n".encode()


def _read_token_certificate(content: bytes) -> None:
    parse_token(str(JoinToken(address="here:1", ca=_pem("CERTIFICATE", content), secret="s")))


def _certificates() -> list[bytes]:
    return [x509.load_pem_x509_certificate(_authority().ca).public_bytes(CertificateEncoding.DER)]


def _sign(content: bytes) -> None:
    _authority().sign(_pem("CERTIFICATE REQUEST", content), "cam-1", "device", timedelta(days=1))


def _signing_requests() -> list[bytes]:
    request = x509.load_pem_x509_csr(signing_request(new_key(), "cam-1"))
    return [request.public_bytes(CertificateEncoding.DER)]


def _graphs() -> Sequence[bytes]:
    import onnx
    from onnx import TensorProto, helper

    tensor = helper.make_tensor("weight", TensorProto.FLOAT, [2], [1.0, 2.0])
    inner = helper.make_graph([], "inner", [], [])
    nodes = [
        helper.make_node("Constant", [], ["out"], value=tensor),
        helper.make_node("If", ["c"], [], then_branch=inner),
    ]
    graph = helper.make_graph(nodes, "tested", [], [], [tensor])
    model: onnx.ModelProto = helper.make_model(graph)
    return [b":\x08\x12\x06tested", model.SerializeToString()]


CONTRACT_DECODERS = (
    Decoder(name="manifest", read=Manifest.from_bytes, seeds=_manifests),
    Decoder(
        name="bundle_zip",
        read=lambda content: read_bundle(scratch.file(content, "bundle.zip")),
        seeds=lambda: [*_bundles(), _deflated_bundle()],
        largest=8192,
    ),
    Decoder(name="csv", read=_read_csv, seeds=lambda: [tables.GOOD.encode()]),
    Decoder(name="npz", read=_read_npz, seeds=_npz_seeds),
    Decoder(name="npy", read=_read_npy, seeds=_npy_seeds),
    Decoder(name="model_file", read=_read_model, seeds=_model_seeds),
    Decoder(name="class_means", read=_read_class_means, seeds=_class_means_seeds),
    Decoder(name="encoded_model", read=_read_encoded_model, seeds=_encoded_seeds),
    Decoder(name="compression", read=_decompress, seeds=_compressed_seeds),
    Decoder(name="join_token", read=_read_token, seeds=lambda: [_token().encode()]),
    Decoder(name="join_token_fields", read=_read_token_fields, seeds=_token_fields),
    Decoder(name="join_token_certificate", read=_read_token_certificate, seeds=_certificates),
    Decoder(name="signing_request", read=_sign, seeds=_signing_requests),
    Decoder(name="graph", read=require_self_contained, seeds=_graphs),
)
