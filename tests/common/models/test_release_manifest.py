"""The manifest of a release: canonical, complete, and trusted only with its signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput, UntrustedBundle, UntrustedRelease, VersionMismatch
from moonfed.models.release_manifest import Evaluation, ReleaseManifest, verify_manifest
from moonfed.signing import canonical
from moonfed.signing.bundle_signature import verify
from moonfed.signing.statement import RELEASE
from moonfed.tasks.anomaly_detection import AnomalyDetection
from tests.support.refusals import refused
from tests.support.releases import ref, release_manifest
from tests.support.signatures import CHAIN, ROTATED, TRUST, signature, trust
from tests.support.tables import INPUT

MANIFEST = release_manifest()
CONTENT = MANIFEST.to_bytes()
ERROR = AnomalyDetection.metric
NOW = 1_800_000_000.0


def signed(content: bytes = CONTENT, **fields: Any) -> bytes:
    return signature(content, **{"name": "digits", "version": 1, "kind": RELEASE, **fields}).to_bytes()


WIDE = Column(name="town", categories=tuple(f"a town with the number {number}" for number in range(5000)))
TOWNS = InputSpec(kind="features", shape=(5000,), table=TableSpec(columns=(WIDE,), targets=("plan",)))


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST,
        release_manifest(evaluation=None, round=7),
        release_manifest(input=INPUT),
        release_manifest(private=True),
        release_manifest(input=TOWNS),
        release_manifest(target=NO_TARGET, metric=ERROR, threshold=0.41),
        release_manifest(pictures={"int8": {"confusion.svg": ref("drawn")}}),
        release_manifest(plan={**MANIFEST.plan, "plan.json": ref("graphs")}),
    ],
)
def test_a_manifest_survives_its_bytes(manifest: ReleaseManifest) -> None:
    assert ReleaseManifest.from_bytes(manifest.to_bytes()) == manifest


def test_a_manifest_names_all_files() -> None:
    assert MANIFEST.files("int8") == dict(MANIFEST.variants["int8"])
    assert {*MANIFEST.files("float32").values(), *MANIFEST.plan.values()} <= MANIFEST.blobs
    assert ref("drawn") in release_manifest(pictures={"int8": {"confusion.svg": ref("drawn")}}).blobs
    with refused(InvalidInput, "variant", "float16"):
        MANIFEST.files("float16")


VARIANT = dict(MANIFEST.variants["float32"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "../digits"}, "name is '../digits'"),
        ({"name": ".digits"}, "name is '.digits'"),
        ({"version": 0}, "version is 0"),
        ({"version": 2**31}, "version is 2147483648"),
        ({"round": -1}, "round is -1"),
        ({"run": "a\nb"}, "run is"),
        ({"variants": {"int8": VARIANT}}, "variants is"),
        ({"variants": {"float32": VARIANT, "../up": VARIANT}}, "variant is '../up'"),
        ({"variants": {"float32": {**VARIANT, "../../key.pem": ref("x")}}}, "name in files of variant 'float32' is"),
        ({"variants": {"float32": {**VARIANT, ".hidden": ref("x")}}}, "name in files of variant 'float32' is"),
        ({"variants": {"float32": {}}}, "files of variant 'float32' is"),
        ({"variants": {"float32": {**VARIANT, **{f"f{n}": ref("x") for n in range(20)}}}}, "number of files"),
        ({"plan": {}}, "plan is"),
        ({"evaluation": Evaluation(score=1.5, samples=1, data_sha256="")}, "accuracy is 1.5"),
        ({"evaluation": Evaluation(score=float("nan"), samples=1, data_sha256="")}, "accuracy is nan"),
        ({"pictures": {"float16": {}}}, "variant of pictures is 'float16'"),
        ({"pictures": {"int8": {"../a.svg": ref("x")}}}, "name in pictures of variant 'int8' is"),
        ({"threshold": 0.5}, "threshold is 0.5"),
        ({"target": NO_TARGET, "threshold": float("nan")}, "threshold is nan"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        release_manifest(**fields)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.pop("run"), "lacks the field 'run'"),
        (lambda document: document.update(target=7), "has a field of the wrong type"),
        (lambda document: document.update(version="1"), "has a field of the wrong type"),
    ],
)
def test_other_documents_are_rejected(change: Callable[[dict[str, Any]], object], message: str) -> None:
    document = json.loads(CONTENT)
    change(document)
    content = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    with pytest.raises(InvalidInput, match=message):
        ReleaseManifest.from_bytes(content)
    for damaged in (b"", b"[]", b"{", CONTENT + b" "):
        with pytest.raises(InvalidInput, match="the release's manifest"):
            ReleaseManifest.from_bytes(damaged)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"format": "moonfed-release/9"}, "format", "moonfed-release/9"),
        ({"extra": 1}, "extra", None),
        ({"metric": {**json.loads(CONTENT)["metric"], "extra": 1}}, "metric.extra", None),
    ],
)
def test_another_version_and_an_unknown_field_are_another_releases(
    change: dict[str, Any], field: str, value: str | None
) -> None:
    content = canonical.encode(json.loads(CONTENT) | change)
    with refused(VersionMismatch, field, value):
        ReleaseManifest.from_bytes(content)


def test_a_signed_manifest_is_trusted() -> None:
    assert verify_manifest(CONTENT, signed(), now=NOW, trust=TRUST) == (MANIFEST, TRUST)
    rotated = signed(keys=[2], chain=ROTATED)
    assert verify_manifest(CONTENT, rotated, now=NOW, trust=TRUST)[1] == ROTATED.newest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the release is not signed"),
        (b"{}", "the release's signature is invalid"),
        (signed(keys=[2]), "the release is signed by .*, which is not trusted"),
        (signed(expires=NOW - 1), "the release's signature expired on .*; sign the release again"),
        (signed(version=2), "the release is version 1 of 'digits', but signed as version 2 of 'digits'"),
        (signed(name="faces"), "but signed as version 1 of 'faces'"),
        (signed(b"another manifest"), "the release's signature is for another manifest"),
        (signature(CONTENT, name="digits").to_bytes(), "has format 'application"),
    ],
)
def test_another_signature_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(UntrustedRelease, match=message):
        verify_manifest(CONTENT, content, now=NOW, trust=TRUST)


def test_a_foreign_trust_file_is_rejected() -> None:
    with pytest.raises(UntrustedRelease, match="is trusted here"):
        verify_manifest(CONTENT, signed(chain=CHAIN), now=NOW, trust=trust(3))


def test_the_signature_of_a_release_is_none_of_a_bundle() -> None:
    with pytest.raises(UntrustedBundle, match="has format 'application"):
        verify(signed(), ref_of_bytes(CONTENT).sha256, now=NOW, trust=TRUST)


def test_an_older_version_stays_valid() -> None:
    """A roll-back needs no key."""
    newer = release_manifest(2)
    assert verify_manifest(newer.to_bytes(), signed(newer.to_bytes(), version=2), now=NOW, trust=TRUST)[0].version == 2
    assert verify_manifest(CONTENT, signed(), now=NOW, trust=TRUST)[0].version == 1
