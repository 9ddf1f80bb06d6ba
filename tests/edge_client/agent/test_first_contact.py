"""Memory of the first contact with a coordinator."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from moonfed.edge_client.agent.enrolment import store_identity
from moonfed.edge_client.agent.first_contact import ATTEMPTS, FirstContact
from moonfed.errors import Denied, Unavailable, Untrusted, WrongServer
from moonfed.transport.identity import Identity
from tests.support.authority import Authority

WRONG = WrongServer("the server is another one")


def identity(state: Path, authority: Authority) -> Identity:
    key, certificate = authority.issue("cam-1", "device", left=timedelta(days=1))
    return store_identity(state, address="127.0.0.1:1", ca=authority.pem, certificate=certificate, key=key)


def test_before_the_first_contact_another_server_is_final_after_a_few_attempts(tmp_path: Path) -> None:
    contact = FirstContact(tmp_path, identity(tmp_path, Authority()))
    assert [contact.may_retry(WRONG) for _ in range(ATTEMPTS + 1)] == [True] * (ATTEMPTS - 1) + [False] * 2


def test_after_the_first_contact_another_server_is_never_final(tmp_path: Path) -> None:
    first = identity(tmp_path, Authority())
    contact = FirstContact(tmp_path, first)
    contact.succeeded()
    renewed = replace(identity(tmp_path, Authority()), ca=first.ca)
    for later in (contact, FirstContact(tmp_path, first), FirstContact(tmp_path, renewed)):
        assert all(later.may_retry(WRONG) for _ in range(100))


def test_another_authoritys_coordinator_is_a_first_contact_again(tmp_path: Path) -> None:
    FirstContact(tmp_path, identity(tmp_path, Authority())).succeeded()
    contact = FirstContact(tmp_path, identity(tmp_path, Authority()))
    assert not [contact.may_retry(WRONG) for _ in range(ATTEMPTS)][-1]


def test_the_coordinators_own_rejections_are_final(tmp_path: Path) -> None:
    contact = FirstContact(tmp_path, identity(tmp_path, Authority()))
    contact.succeeded()
    for reason in (Untrusted("revoked"), Denied("not yours"), Unavailable("away")):
        assert not contact.may_retry(reason)


def test_without_tls_or_on_a_full_disk_it_is_remembered_until_the_end(tmp_path: Path) -> None:
    for state, held in ((tmp_path, None), (tmp_path / "absent", None)):
        contact = FirstContact(state, held)
        contact.succeeded()
        assert contact.may_retry(WRONG)
