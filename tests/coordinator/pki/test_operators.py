"""Operators' identities: roles, names, revocation, and the identity in the state directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.pki.operators import OperatorIdentities
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.formatting import moment
from moonfed.transport.identity import (
    ROLES,
    Role,
    key_bytes,
    load_identity,
    new_key,
    read_certificate,
    save_identity,
    signing_request,
)
from tests.coordinator.pki.conftest import request
from tests.support.refusals import refused


@pytest.fixture
def identities(tmp_path: Path) -> Iterator[OperatorIdentities]:
    store = open_store(tmp_path / "coordinator.db")
    authority = Authority(tmp_path / "authority")
    yield OperatorIdentities(authority=authority, registry=store.operators, address="example.org:7443")
    store.close()


@pytest.mark.parametrize("role", ROLES)
def test_the_certificate_names_the_operator_and_the_role(identities: OperatorIdentities, role: Role) -> None:
    signed = identities.create("ann", role, request("somebody-else"), "operator")
    read = read_certificate(signed.certificate)
    assert (read.kind, read.name, read.role, read.serial) == ("operator", "ann", role, signed.serial)
    subject = x509.load_pem_x509_certificate(signed.certificate).subject.rfc4514_string()
    assert subject == f"2.5.4.72={role},OU=operator,CN=ann"
    (record,) = identities.registry.operators()
    assert (record.operator, record.role, record.serial) == ("ann", role, signed.serial)
    assert (record.created_by, record.expires, record.revoked) == ("operator", moment(signed.expires), None)


def test_a_wrong_role_or_name_is_rejected(identities: OperatorIdentities) -> None:
    with refused(InvalidInput, "role", "root"):
        identities.create("ann", "root", request(), "operator")
    with refused(InvalidInput, "operator", "Ann"):
        identities.create("Ann", "viewer", request(), "operator")
    assert identities.registry.operators() == []


def test_a_name_is_taken_until_its_certificates_are_revoked(identities: OperatorIdentities) -> None:
    first = identities.create("ann", "viewer", request(), "operator")
    with refused(AlreadyExists, "operator", "ann"):
        identities.create("ann", "viewer", request(), "operator")
    assert [found.serial for found in identities.revoke("ann")] == [first.serial]
    second = identities.create("ann", "admin", request(), "operator")
    assert identities.registry.revoked() == {first.serial}
    assert identities.revoke("ann")[0].serial == second.serial
    assert identities.revoke("ann") == [], "a repeated call changes nothing"
    with refused(NotFound, "operator", "bob"):
        identities.revoke("bob")


def test_a_lost_reply_can_be_requested_again_with_the_same_key(identities: OperatorIdentities) -> None:
    asked = request()
    certificates = [identities.create("ann", "viewer", asked, "operator") for _ in range(2)]
    assert len({signed.serial for signed in certificates}) == 2
    with pytest.raises(AlreadyExists):
        identities.create("ann", "admin", asked, "operator")
    assert {found.serial for found in identities.revoke("ann")} == {signed.serial for signed in certificates}


def test_the_state_directorys_own_operator_is_an_admin_and_is_kept(
    identities: OperatorIdentities, tmp_path: Path
) -> None:
    directory = tmp_path / "operator"
    issued = identities.ensure_own(directory, "127.0.0.1:7443")
    held = load_identity(directory)
    assert issued
    assert issued.certificate == held.certificate
    read = read_certificate(held.certificate)
    assert (read.kind, read.name, read.role) == ("operator", "operator", "admin")
    assert identities.ensure_own(directory, "127.0.0.1:7443") is None
    assert load_identity(directory) == held
    assert identities.ensure_own(directory, "127.0.0.1:9999") is None
    moved = load_identity(directory)
    assert (moved.address, moved.certificate) == ("127.0.0.1:9999", held.certificate)
    assert [found.serial for found in identities.registry.operators()] == [read.serial]


def test_the_own_identity_is_replaced_once_it_is_revoked(identities: OperatorIdentities, tmp_path: Path) -> None:
    identities.ensure_own(tmp_path / "operator", "127.0.0.1:7443")
    identities.revoke("operator")
    issued = identities.ensure_own(tmp_path / "operator", "127.0.0.1:7443")
    assert issued
    assert issued.serial not in identities.registry.revoked()
    assert load_identity(tmp_path / "operator").certificate == issued.certificate


@pytest.mark.parametrize("role", ["viewer", None])
def test_an_own_identity_without_the_admins_role_is_replaced(
    identities: OperatorIdentities, tmp_path: Path, role: Role | None
) -> None:
    key = new_key()
    signed = identities.authority.sign(
        signing_request(key, "operator"), "operator", "operator", timedelta(days=365), role
    )
    save_identity(
        tmp_path / "operator",
        address="127.0.0.1:7443",
        ca=identities.authority.ca,
        certificate=signed.certificate,
        key=key_bytes(key),
    )
    assert identities.ensure_own(tmp_path / "operator", "127.0.0.1:7443")
    assert read_certificate(load_identity(tmp_path / "operator").certificate).role == "admin"


def test_an_own_identity_of_another_authority_is_replaced(identities: OperatorIdentities, tmp_path: Path) -> None:
    other = replace(identities, authority=Authority(tmp_path / "other"))
    other.ensure_own(tmp_path / "operator", "127.0.0.1:7443")
    assert identities.ensure_own(tmp_path / "operator", "127.0.0.1:7443")
    assert load_identity(tmp_path / "operator").ca == identities.authority.ca


def test_an_own_identity_is_recorded_in_a_database_that_lost_it(identities: OperatorIdentities, tmp_path: Path) -> None:
    identities.ensure_own(tmp_path / "operator", "127.0.0.1:7443")
    store = open_store(tmp_path / "restored.db")
    restored = OperatorIdentities(authority=identities.authority, registry=store.operators, address="example.org:7443")
    assert restored.ensure_own(tmp_path / "operator", "127.0.0.1:7443") is None
    (before,), (after,) = identities.registry.operators(), store.operators.operators()
    assert (after.serial, after.role) == (before.serial, "admin")
    assert len(restored.revoke("operator")) == 1
    store.close()
