"""Bundles as directories and zip files: round trips; damaged and incomplete ones are rejected."""

import os
import tracemalloc
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.bundle.files import Bundle, read_bundle, sign_bundle, write_bundle
from moonfed.bundle.manifest import MANIFEST_FILE
from moonfed.errors import Corrupt, InvalidInput, MoonfedError, NotFound, UntrustedBundle
from moonfed.signing.bundle_signature import SIGNATURE_FILE, BundleSignature, signed_by
from moonfed.signing.key_files import Signer
from tests.common.bundle.test_manifest import CONTENTS, MANIFEST
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, TRUST, key

SIGNER = Signer((key(1),), CHAIN)


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_bundle_survives_as_directory_and_as_zip(tmp_path: Path, name: str) -> None:
    bundle = Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()})
    write_bundle(tmp_path / name, bundle)
    write_bundle(tmp_path / name, bundle)
    assert read_bundle(tmp_path / name) == bundle
    assert bundle.ref == ref_of_bytes(MANIFEST.to_bytes())


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_signature_is_written_and_verified_before_anything_else_is_read(tmp_path: Path, name: str) -> None:
    unsigned = Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()})
    signed = sign_bundle(unsigned, SIGNER, version=1, expires=1000.9)
    write_bundle(tmp_path / name, signed)
    assert read_bundle(tmp_path / name, signed_by(TRUST, lambda: 999.0)) == read_bundle(tmp_path / name) == signed
    hollow = Bundle(MANIFEST, {MANIFEST_FILE: b"not even JSON"}, signed.signature)
    for given, now, problem in (
        (signed, 1000.0, "signature expired on 1970-01-01 00:16 UTC"),
        (unsigned, 999.0, "is not signed"),
        (hollow, 999.0, "is for another manifest"),
        (replace(hollow, signature=b"{}"), 999.0, "exactly the fields signature, trust"),
        (replace(hollow, signature=b"{" * 65536), 999.0, "not JSON"),
    ):
        check = signed_by(TRUST, lambda now=now: now)  # type: ignore[misc]
        write_bundle(tmp_path / name, given)
        with pytest.raises(UntrustedBundle, match=problem):
            read_bundle(tmp_path / name, check)


def test_a_bundle_that_was_signed_under_another_name_is_rejected(tmp_path: Path) -> None:
    unsigned = Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()})
    renamed = replace(unsigned, manifest=replace(MANIFEST, name="other"))
    signed = replace(unsigned, signature=sign_bundle(renamed, SIGNER, version=1, expires=1000).signature)
    statement = BundleSignature.from_bytes(signed.signature).statement
    write_bundle(tmp_path / "bundle", signed)
    assert (statement.name, statement.manifest) == ("other", unsigned.ref.sha256)
    with refused(UntrustedBundle, "name"):
        read_bundle(tmp_path / "bundle", signed_by(TRUST, lambda: 0.0))


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_signature_that_is_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    unsigned = Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()})
    write_bundle(tmp_path / name, replace(unsigned, signature=b" " * 65537))
    with pytest.raises(Corrupt, match=f"{SIGNATURE_FILE} in .* is larger"):
        read_bundle(tmp_path / name)


def test_a_damaged_or_incomplete_bundle_is_rejected(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    (tmp_path / "b" / "plan.pt").write_bytes(b"other")
    with pytest.raises(Corrupt, match=r"plan\.pt"):
        read_bundle(tmp_path / "b")
    write_bundle(tmp_path / "b.zip", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    damaged = (tmp_path / "b.zip").read_bytes().replace(b"plan.ptplan.pt", b"plan.ptplam.pt")
    (tmp_path / "b.zip").write_bytes(damaged)
    with refused(Corrupt, "plan.pt"):
        read_bundle(tmp_path / "b.zip")
    (tmp_path / "b" / "plan.pt").unlink()
    with pytest.raises(NotFound, match=r"has no plan\.pt"):
        read_bundle(tmp_path / "b")
    with refused(NotFound, "bundle"):
        read_bundle(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_a_bundle_with_a_truncated_manifest_is_named(tmp_path: Path, name: str) -> None:
    whole = MANIFEST.to_bytes()
    write_bundle(tmp_path / name, Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: whole[: len(whole) // 2]}))
    with pytest.raises(InvalidInput) as rejected:
        read_bundle(tmp_path / name)
    assert str(rejected.value) == (
        f"bundle is {str(tmp_path / name)!r}, which cannot be used: manifest.json is not JSON"
    )


def test_a_directory_without_a_bundle_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with refused(InvalidInput, "output"):
        write_bundle(tmp_path, Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("content", [b"years of work", b"PK\5\6" + bytes(18)])
def test_a_zip_without_a_bundle_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "thesis.zip").write_bytes(content)
    with refused(InvalidInput, "output"):
        write_bundle(tmp_path / "thesis.zip", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    assert (tmp_path / "thesis.zip").read_bytes() == content


@pytest.mark.parametrize("file", [MANIFEST_FILE, "plan.pt"])
def test_a_small_zip_that_expands_to_gigabytes_is_rejected_unread(tmp_path: Path, file: str) -> None:
    contents = CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            with archive.open(name, "w") as target:
                for _ in range(1 if name != file else 200):
                    target.write(content if name != file else bytes(1 << 20))
    assert (tmp_path / "bomb.zip").stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="is larger than it may be"):
            read_bundle(tmp_path / "bomb.zip")
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


def test_a_directory_with_a_device_or_a_pipe_for_a_file_is_rejected(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    (tmp_path / "b" / "plan.pt").unlink()
    os.mkfifo(tmp_path / "b" / "plan.pt")
    with refused(Corrupt, "plan.pt"):
        read_bundle(tmp_path / "b")
    (tmp_path / "b" / "plan.pt").unlink()
    (tmp_path / "b" / "plan.pt").symlink_to("/dev/zero")
    with refused(Corrupt, "plan.pt"):
        read_bundle(tmp_path / "b")


def test_damaged_zips_raise_nothing_else(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.zip", Bundle(MANIFEST, CONTENTS | {MANIFEST_FILE: MANIFEST.to_bytes()}))
    whole = (tmp_path / "b.zip").read_bytes()
    for position in range(0, len(whole), 11):
        (tmp_path / "b.zip").write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        with suppress(MoonfedError):
            read_bundle(tmp_path / "b.zip")
