"""Join tokens survive line breaks; damage is reported."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from moonfed import errors
from moonfed.transport.join_token import JoinToken, parse_token
from tests.support.refusals import refused
from tests.support.signatures import CHAIN
from tests.support.tls_fleet import Authority


def test_a_join_token_survives_line_breaks_and_damage_is_reported() -> None:
    token = JoinToken(address="hub.example:7444", ca=Authority.make().pem, secret="s3cret")
    text = str(token)
    assert parse_token(text[:100] + "\n  " + text[100:]) == token
    with pytest.raises(errors.InvalidInput, match="damaged or cut off"):
        parse_token(text[:-20])
    damaged = JoinToken(address="hub.example:7444", ca=b"no certificate", secret="s3cret")
    with pytest.raises(errors.InvalidInput, match="damaged or cut off"):
        parse_token(str(damaged))
    with pytest.raises(errors.InvalidInput, match="must start with"):
        parse_token("hello")


def test_a_token_of_another_version_is_not_taken_for_a_damaged_one() -> None:
    token = str(JoinToken(address="hub.example:7444", ca=Authority.make().pem, secret="s3cret"))
    with refused(errors.VersionMismatch, "format", "moonfed-join-2"):
        parse_token(token.replace("moonfed-join-1", "moonfed-join-2"))


def altered(token: JoinToken, change: Callable[[dict[str, Any]], object]) -> str:
    """A token with other fields."""
    body = str(token).removeprefix("moonfed-join-1.")
    fields = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    change(fields)
    return f"moonfed-join-1.{base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()}"


def test_fields_of_a_later_coordinator_are_ignored() -> None:
    token = JoinToken(address="hub.example:7444", ca=Authority.make().pem, secret="s3cret")
    assert parse_token(altered(token, lambda fields: fields.update(later=1))) == token


def test_a_trust_file_of_another_version_is_not_taken_for_damage() -> None:
    token = JoinToken(address="hub.example:7444", ca=Authority.make().pem, secret="s3cret", trust=CHAIN)
    assert parse_token(str(token)) == token
    later = "application/vnd.moonfed.trust.2+json"
    with refused(errors.VersionMismatch, "format", later):
        parse_token(altered(token, lambda fields: fields["trust"][0].update(payloadType=later)))
