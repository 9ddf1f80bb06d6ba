"""Arbitrary input from the network: each decoder accepts it, or explains the error in one sentence."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zipfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moonfed.blobs.tensors import header_bytes, open_model, require_finite, split
from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.rpc import control_service, convert_fleet
from moonfed.coordinator.updates.validation import check_files, check_header, largest_files
from moonfed.errors import InvalidInput, MoonfedError, SchemaMismatch, UntrustedBundle
from moonfed.fleet.messages import read_assignment, read_run_ended
from moonfed.signing import statement as statements
from moonfed.signing import trust as trusts
from moonfed.signing.bundle_signature import BundleSignature, verify
from moonfed.signing.envelope import Envelope
from moonfed.signing.trust import TrustChain
from moonfed.transport.identity import new_key, signing_request
from moonfed.transport.join_token import PREFIX, JoinToken, parse_token
from moonfed.v1 import control_pb2, fleet_pb2
from tests.faults.messages import JSON, all_spoilt, damaged, messages, spoilt
from tests.support import coordinator
from tests.support.signatures import CHAIN, ROTATED, TRUST, key, signed

BUNDLE = coordinator.make_bundle(downlink=coordinator.SCAFFOLD["downlink"], uplink=coordinator.SCAFFOLD["uplink"])
WORDS = ["", MODEL, "r", "cam-1", "loss", "holdout_samples", "0" * 64, BUNDLE.ref.sha256, "1.4", "int8+zstd"]
MODEL_FILE = coordinator.model_bytes(1.0)
SIGNED = signed(BUNDLE, keys=[2], chain=ROTATED).signature
STATEMENT = {"name": "digits", "version": 1, "manifest": BUNDLE.ref.sha256, "expires": 2_000_000_000}
REQUEST = signing_request(new_key(), "cam-1")
HEADER = json.loads(header_bytes(coordinator.SPECS)[8:])
# One directory for all examples: each overwrites the file of the one before.
EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@EXAMPLES
@given(messages(fleet_pb2.SubmitHeader, WORDS))
def test_the_header_of_an_update(message: fleet_pb2.SubmitHeader) -> None:
    with suppress(MoonfedError):
        header = convert_fleet.update_header("cam-1", message)
        check_header(header, largest_files(BUNDLE.manifest, header.encoding), header.encoding)


@EXAMPLES
@given(messages(fleet_pb2.ConnectRequest, WORDS), messages(control_pb2.UploadRequest, WORDS))
def test_connect_and_upload_requests(connect: fleet_pb2.ConnectRequest, upload: control_pb2.UploadRequest) -> None:
    with suppress(MoonfedError):
        assert convert_fleet.device_info("cam-1", connect).device == "cam-1"
    with suppress(MoonfedError):
        control_service._upload_header(upload)


@EXAMPLES
@given(messages(fleet_pb2.Assignment, WORDS), messages(fleet_pb2.RunEnded, WORDS))
def test_the_messages_to_a_device(assignment: fleet_pb2.Assignment, ended: fleet_pb2.RunEnded) -> None:
    with suppress(MoonfedError):
        assert len(read_assignment(assignment).digest()) == 64
    with suppress(MoonfedError):
        read_run_ended(ended)


@EXAMPLES
@given(content=damaged(MODEL_FILE) | spoilt(HEADER).map(lambda document: with_header(document)))
def test_a_tensor_file_matches_its_schema_exactly_or_is_rejected(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with suppress(SchemaMismatch):
        check_files({MODEL: path}, coordinator.make_bundle().manifest)
        vector = open_model(path, coordinator.SPECS)
        require_finite(vector, coordinator.SPECS)
        assert vector.nbytes == len(MODEL_FILE) - len(header_bytes(coordinator.SPECS))
        assert np.isfinite(
            np.concatenate([tensor.ravel() for tensor in split(vector, coordinator.SPECS).values()])
        ).all()


def with_header(document: Any) -> bytes:
    text = json.dumps(document).encode()
    return len(text).to_bytes(8, "little") + text + MODEL_FILE[len(header_bytes(coordinator.SPECS)) :]


def test_no_value_of_a_manifest_is_taken_on_trust() -> None:
    for document in all_spoilt(json.loads(BUNDLE.manifest.to_bytes())):
        for content in (canonical_bytes(document), json.dumps(document).encode()):
            with suppress(InvalidInput):
                assert Manifest.from_bytes(content).to_bytes() == content


def test_no_value_of_a_tensor_header_is_taken_on_trust(tmp_path: Path) -> None:
    for document in all_spoilt(HEADER):
        (tmp_path / "model").write_bytes(with_header(document))
        if document != HEADER:
            with pytest.raises(SchemaMismatch):
                open_model(tmp_path / "model", coordinator.SPECS)


@EXAMPLES
@given(
    spoilt(json.loads(BUNDLE.manifest.to_bytes())).map(lambda document: json.dumps(document).encode())
    | spoilt(json.loads(BUNDLE.manifest.to_bytes())).map(lambda document: canonical_bytes(document))
    | damaged(BUNDLE.manifest.to_bytes())
    | st.binary(max_size=64)
)
def test_a_manifest(content: bytes) -> None:
    with suppress(InvalidInput):
        assert Manifest.from_bytes(content).to_bytes() == content


def canonical_bytes(document: Any) -> bytes:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"format":' * 10_000, b"\xff" * 50, b"9" * 5000])
def test_a_hostile_manifest_is_rejected(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Manifest.from_bytes(content)
    (tmp_path / "model").write_bytes(len(content).to_bytes(8, "little") + content)
    with pytest.raises(SchemaMismatch):
        open_model(tmp_path / "model", coordinator.SPECS)
    with pytest.raises(InvalidInput):
        parse_token(PREFIX + base64.urlsafe_b64encode(content).decode())


def test_no_value_of_a_join_token_is_taken_on_trust(authority: Authority) -> None:
    whole = {"address": "here:1", "ca": authority.ca.decode(), "secret": "s", "trust": TRUST.to_document()}
    for document in all_spoilt(whole):
        with suppress(InvalidInput):
            parse_token(token_of(document))


def token_of(document: Any) -> str:
    return PREFIX + base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@EXAMPLES
@given(data=st.data())
def test_a_join_token(authority: Authority, data: st.DataObject) -> None:
    whole = str(JoinToken(address="here:1", ca=authority.ca, secret="s", trust=CHAIN))
    cut = data.draw(damaged(whole.encode())).decode(errors="surrogateescape")
    for text in (
        token_of(data.draw(JSON)),
        cut,
        data.draw(st.text(max_size=80)),
        PREFIX + data.draw(st.text(max_size=80)),
    ):
        with suppress(InvalidInput):
            parse_token(text)


def test_no_value_of_a_signature_is_taken_on_trust() -> None:
    for document in all_spoilt(json.loads(SIGNED)):
        for content in (canonical_bytes(document), json.dumps(document).encode(errors="surrogatepass")):
            with suppress(UntrustedBundle):
                verify(content, BUNDLE.ref.sha256, now=0.0, trust=TRUST)
                assert content == SIGNED


@EXAMPLES
@given(spoilt(json.loads(SIGNED)).map(lambda document: canonical_bytes(document)) | damaged(SIGNED) | st.binary())
def test_malformed_signatures(content: bytes) -> None:
    with suppress(UntrustedBundle):
        verify(content, BUNDLE.ref.sha256, now=0.0, trust=TRUST)
        assert content == SIGNED


@EXAMPLES
@given(
    st.sampled_from([STATEMENT, TRUST.to_document()]).flatmap(spoilt).map(lambda document: canonical_bytes(document))
    | st.binary()
)
def test_malformed_documents_with_a_trusted_signature_are_rejected(payload: bytes) -> None:
    """Verify malformed statements and malformed new versions of the trust file."""
    statement = Envelope(kind=statements.BUNDLE.media_type, payload=payload).sign(key(1))
    successor = Envelope(kind=trusts.KIND, payload=payload).sign(key(1))
    chains = TrustChain((*CHAIN.envelopes, successor)), TrustChain((successor,)), CHAIN
    for chain in chains:
        with suppress(UntrustedBundle):
            verify(BundleSignature(statement, chain).to_bytes(), BUNDLE.ref.sha256, now=0.0, trust=TRUST)


@EXAMPLES
@given(data=st.data())
def test_a_signing_request(authority: Authority, data: st.DataObject) -> None:
    request = data.draw(damaged(REQUEST) | st.binary(max_size=200))
    with suppress(InvalidInput):
        signed = authority.sign(request, "cam-2", "device", timedelta(days=1))
        assert b"BEGIN CERTIFICATE" in signed.certificate


class Trap:
    """An object that creates a directory when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_file_that_would_execute_code_when_loaded_is_rejected_unopened(tmp_path: Path) -> None:
    pickled = pickle.dumps(Trap(tmp_path / "sprung"))
    archive = tmp_path / "plan.pt"  # as TorchScript and torch.save write theirs: a zip file with a pickle in it
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("archive/data.pkl", pickled)
    for content in (pickled, archive.read_bytes()):
        (tmp_path / "model").write_bytes(content)
        with pytest.raises(SchemaMismatch):
            check_files({MODEL: tmp_path / "model"}, coordinator.make_bundle().manifest)
        with pytest.raises(InvalidInput):
            Manifest.from_bytes(content)
    assert not (tmp_path / "sprung").exists()
