"""Identities: kind, name and role, renewal, and files that are missing or damaged."""

from pathlib import Path

import pytest

from moonfed import errors
from moonfed.transport.identity import ROLES, default_name, load_identity, read_certificate, subject_of
from tests.support.refusals import refused
from tests.support.tls_fleet import HOUR, Authority, Served


def test_the_kind_and_name_come_from_the_certificate() -> None:
    authority = Authority.make()
    assert subject_of(authority.issue("cam-1", "device")[1]) == ("device", "cam-1")
    assert subject_of(authority.issue("ann", "operator", role="viewer")[1]) == ("operator", "ann")
    with pytest.raises(errors.Untrusted, match="names neither a device"):
        subject_of(authority.issue("x", "server")[1])


@pytest.mark.parametrize("role", ROLES)
def test_an_operators_certificate_has_a_role(role: str) -> None:
    assert read_certificate(Authority.make().issue("ann", "operator", role=role)[1]).role == role


@pytest.mark.parametrize("role", ["", "root"])
def test_an_operator_without_a_known_role_is_not_trusted(role: str) -> None:
    with refused(errors.Untrusted, "role of operator", "ann"):
        read_certificate(Authority.make().issue("ann", "operator", role=role)[1])


def test_a_devices_role_is_ignored() -> None:
    assert read_certificate(Authority.make().issue("cam-1", "device", role="admin")[1]).role is None


def test_a_certificate_is_renewed_in_the_last_third_of_its_life(served: Served) -> None:
    assert not served.identity(life=2 * HOUR).is_due_for_renewal()
    assert served.identity(life=HOUR / 2).is_due_for_renewal()


def test_an_identity_names_missing_files_and_protects_its_key(served: Served, tmp_path: Path) -> None:
    directory = served.identity().directory
    assert (directory / "key.pem").stat().st_mode & 0o077 == 0
    (directory / "key.pem").write_bytes(b"junk")
    with pytest.raises(errors.Corrupt, match="damaged certificate or key"):
        load_identity(directory)
    (directory / "ca.pem").unlink()
    with refused(errors.NotFound, "ca.pem"):
        load_identity(directory)


@pytest.mark.parametrize(("host", "name"), [("CAM-7", "cam-7"), ("jetson", "jetson"), ("Nano.Local", "nano.local")])
def test_a_device_is_named_like_its_host(monkeypatch: pytest.MonkeyPatch, host: str, name: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    assert default_name() == name


@pytest.mark.parametrize("host", ["", "-cam", "küche", "h" * 64], ids=["none", "dash", "umlaut", "long"])
def test_a_host_that_no_device_can_be_named_like_is_an_error(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    with pytest.raises(errors.InvalidInput, match="give one with --name"):
        default_name()
