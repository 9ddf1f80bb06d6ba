"""Manifests have one byte form and say what is wrong; bundles are whole or refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs import ref_of_bytes
from moonfed.bundle import Bundle, read_bundle, write_bundle
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.manifest import FILES, MANIFEST_FILE, InputSpec, LocalTraining, Manifest, PlanSpec
from moonfed.tensors import TensorSpec

CONTENTS = {name: name.encode() for name in FILES}
MANIFEST = Manifest(
    name="digits",
    model="cnn",
    method="moon",
    hyperparameters={"mu": 5.0, "tau": 0.5},
    previous_models=1,
    training=LocalTraining(epochs=10, batch_size=64),
    input=InputSpec(kind="image", shape=(8, 8, 1)),
    classes=("zero", "ön€"),
    tensors=(TensorSpec("a", (2, 3), "parameter"), TensorSpec("b", (), "statistic")),
    plan=PlanSpec(minimum_torch="2.4", built_with_torch="2.13.0"),
    files={name: ref_of_bytes(content) for name, content in CONTENTS.items()},
)


def altered(change: dict[str, Any]) -> bytes:
    document = json.loads(MANIFEST.to_bytes())
    for path, value in change.items():
        *parents, last = path.split(".")
        place = document
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_reading_and_writing_gives_the_same_bytes() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes()) == MANIFEST
    assert altered({}) == MANIFEST.to_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "moonfed-bundle/9"}, "format 'moonfed-bundle/9'; this release reads 'moonfed-bundle/1'"),
        ({"classes": ["a"]}, "classes is .* at least two"),
        ({"classes": ["a", "a"]}, "all differ"),
        ({"classes": ["a", " "]}, "not empty"),
        ({"classes": ...}, "lacks the field 'classes'"),
        ({"training.epochs": 0}, "epochs is 0"),
        ({"training.batch_size": "many"}, "wrong type"),
        ({"input.kind": "sound"}, "input.kind is 'sound'; it must be 'image' or 'features'"),
        ({"input.shape": [8, 8]}, "input.shape is"),
        ({"tensors.0.dtype": "F64"}, "dtype of tensor 'a' is 'F64'"),
        ({"tensors.0.kind": "secret"}, "kind of tensor 'a'"),
        ({"tensors.0.name": "z"}, "in order of their names"),
        ({"hyperparameters.mu": "5"}, "canonical"),
        ({"files.plan.pt.sha256": "x"}, "wrong type|sha256"),
        ({"surprise": 1}, "fields that this release does not know"),
        ({"previous_models": -1}, "previous_models is -1"),
    ],
)
def test_a_wrong_manifest_is_refused_by_field(change: dict[str, Any], message: str) -> None:
    if "files.plan.pt.sha256" in change:
        document = json.loads(MANIFEST.to_bytes())
        document["files"]["plan.pt"]["sha256"] = "x"
        content = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    else:
        content = altered(change)
    with pytest.raises(InvalidInput, match=message):
        Manifest.from_bytes(content)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, MANIFEST.to_bytes() + b"\n"])
def test_what_is_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        Manifest.from_bytes(content)


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_bundle_survives_as_directory_and_as_zip(tmp_path: Path, name: str) -> None:
    bundle = Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()})
    write_bundle(tmp_path / name, bundle)
    write_bundle(tmp_path / name, bundle)
    assert read_bundle(tmp_path / name) == bundle
    assert bundle.ref == ref_of_bytes(MANIFEST.to_bytes())


def test_a_damaged_or_incomplete_bundle_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    (tmp_path / "b" / "plan.pt").write_bytes(b"other")
    with pytest.raises(Corrupt, match=r"plan\.pt"):
        read_bundle(tmp_path / "b")
    write_bundle(tmp_path / "b.zip", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    damaged = (tmp_path / "b.zip").read_bytes().replace(b"plan.ptplan.pt", b"plan.ptplam.pt")
    (tmp_path / "b.zip").write_bytes(damaged)
    with pytest.raises(Corrupt, match=r"plan\.pt in .* the bundle is damaged"):
        read_bundle(tmp_path / "b.zip")
    (tmp_path / "b" / "plan.pt").unlink()
    with pytest.raises(NotFound, match=r"has no plan\.pt"):
        read_bundle(tmp_path / "b")
    with pytest.raises(NotFound, match="is not a bundle"):
        read_bundle(tmp_path / "nowhere")


def test_a_directory_that_is_no_bundle_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InvalidInput, match="exists and is not a bundle"):
        write_bundle(tmp_path, Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("content", [b"years of work", b"PK\5\6" + bytes(18)])
def test_a_zip_that_is_no_bundle_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "thesis.zip").write_bytes(content)
    with pytest.raises(InvalidInput, match="exists and is not a bundle"):
        write_bundle(tmp_path / "thesis.zip", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    assert (tmp_path / "thesis.zip").read_bytes() == content
