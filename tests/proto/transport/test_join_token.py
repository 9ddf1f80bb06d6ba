"""Join tokens survive line breaks; damage is reported."""

import pytest

from moonfed import errors
from moonfed.transport.join_token import JoinToken, parse_token
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
