from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import TensorProto, helper

from moonfed.blobs.store import BlobDirectory, BlobRef, ref_of_bytes
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import GRAPH_FILE, GRAPH_PLAN_FILE, MANIFEST_FILE
from moonfed.errors import Corrupt, InvalidInput, UntrustedBundle, VersionMismatch
from moonfed.v1 import control_pb2
from tests.coordinator.conftest import Fleet
from tests.support.coordinator import ask, make_bundle
from tests.support.graph_manifest import with_graphs
from tests.support.refusals import refused
from tests.support.signatures import ROTATED, signature, signed


def with_graph(graph: bytes) -> Bundle:
    bundle = make_bundle()
    manifest = replace(bundle.manifest, files={**bundle.manifest.files, GRAPH_FILE: ref_of_bytes(graph)})
    return signed(Bundle(manifest, {**bundle.contents, GRAPH_FILE: graph, MANIFEST_FILE: manifest.to_bytes()}))


def test_a_graph_that_names_another_file_starts_no_run(fleet: Fleet) -> None:
    stolen = TensorProto(name="stolen", data_location=TensorProto.EXTERNAL)
    stolen.external_data.add(key="location", value="../operator/key.pem")
    graph = helper.make_model(helper.make_graph([], "tested", [], [], initializer=[stolen])).SerializeToString()
    with pytest.raises(InvalidInput, match=r"model\.onnx has a tensor 'stolen'"):
        fleet.start(bundle=with_graph(graph))
    with pytest.raises(Corrupt, match=r"model\.onnx is not an"):
        fleet.start(bundle=with_graph(b"\xff"))
    assert not ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs


@pytest.mark.parametrize(
    ("old", "new"), [(b'"name":"digits"', b'"name":"digits\\n"'), (b'"a","b"', b'"a\\u001b[2J","b"')]
)
def test_a_manifest_that_would_forge_lines_of_a_log_starts_no_run(
    old: bytes, new: bytes, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = make_bundle()
    manifest = bundle.contents[MANIFEST_FILE].replace(old, new)
    assert manifest != bundle.contents[MANIFEST_FILE]
    forged = Bundle(bundle.manifest, {**bundle.contents, MANIFEST_FILE: manifest}, b"")
    forged = replace(forged, signature=signature(manifest, name="digits").to_bytes())
    with pytest.raises(InvalidInput, match="without control characters"):
        fleet.start(bundle=forged)
    assert not ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs
    assert not any("\x1b" in message or "\n" in message for message in caplog.messages)


BUNDLE = make_bundle()
UNTRUSTWORTHY: dict[str, tuple[bytes, str]] = {
    "unsigned": (b"", "is not signed"),
    "expired": (signed(BUNDLE, expires=1).signature, "signature expired on 1970-01-01 00:00 UTC"),
    "other manifest": (signature(b"other", name="digits").to_bytes(), "is for another manifest"),
    "other name": (signed(BUNDLE, name="other").signature, "is named 'digits', but signed as 'other'"),
    "rotated key": (signed(BUNDLE, chain=ROTATED).signature, "which is not trusted"),
    "too large": (b"{" * 65537, "65537 bytes"),
    "nonsense": (b"{}", "fields signature, trust"),
}


@pytest.mark.parametrize("attack", UNTRUSTWORTHY)
def test_a_bundle_without_a_valid_signature_starts_no_run(attack: str, fleet: Fleet) -> None:
    content, reason = UNTRUSTWORTHY[attack]
    with pytest.raises(UntrustedBundle, match=reason):
        fleet.start(bundle=replace(BUNDLE, signature=content))
    assert not ask(fleet.operator.control.ListRuns, control_pb2.ListRunsRequest()).runs


def test_a_signature_that_is_too_large_is_not_read(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, read = list[int](), BlobDirectory.read

    def recording(blobs: BlobDirectory, ref: BlobRef) -> bytes:
        sizes.append(ref.size)
        return read(blobs, ref)

    monkeypatch.setattr(BlobDirectory, "read", recording)
    fleet.start(bundle=BUNDLE)
    assert len(BUNDLE.signature) in sizes
    with pytest.raises(UntrustedBundle, match="it must be at most 65536"):
        fleet.start(bundle=replace(BUNDLE, signature=b"{" * 65537))
    assert 65537 not in sizes


def test_a_run_keeps_its_bundles_signature(fleet: Fleet) -> None:
    started = fleet.start("run")
    assert fleet.operator.model(started.signature) == BUNDLE.signature
    assert fleet.operator.run("run").signature == started.signature
    session = fleet.device("cam-1").connect()
    assert session.assignment().signature == started.signature


def test_a_run_that_requires_graphs_needs_a_bundle_that_has_them(fleet: Fleet) -> None:
    with refused(VersionMismatch, "plan", "digits"):
        fleet.start(require_plan="graph")
    graphs = b"graphs, which the coordinator does not read"
    bundle = make_bundle()
    manifest = with_graphs(bundle.manifest, graphs)
    contents = {**bundle.contents, GRAPH_PLAN_FILE: graphs, MANIFEST_FILE: manifest.to_bytes()}
    fleet.start("run", bundle=signed(Bundle(manifest, contents)), require_plan="graph")
    fleet.device("cam-1").connect()
    one = fleet.device("cam-2").connect(interface="graph/1", fingerprint="f")
    assert one.next().check.required_plan == "graph/1"
    two = fleet.device("cam-3").connect(interface="graph/1")
    assert two.assignment().required_plan == "graph/1"
    assert fleet.operator.run("run").eligible == 1
