"""The status of each error, as Triton's clients expect it."""

from __future__ import annotations

import logging

import grpc
import pytest

from moonfed.errors import InvalidInput, MoonfedError, NotFound, Overloaded, ResourceExhausted, Unavailable
from moonfed.serving.requests.status_codes import status_of


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (InvalidInput, grpc.StatusCode.INVALID_ARGUMENT, 400),
        (NotFound, grpc.StatusCode.NOT_FOUND, 404),
        (ResourceExhausted, grpc.StatusCode.RESOURCE_EXHAUSTED, 413),
        (Unavailable, grpc.StatusCode.UNAVAILABLE, 503),
        (Overloaded, grpc.StatusCode.UNAVAILABLE, 503),
        (MoonfedError, grpc.StatusCode.INTERNAL, 500),
    ],
)
def test_a_moonfed_error_has_its_status_and_message(
    error: type[MoonfedError], code: grpc.StatusCode, status: int
) -> None:
    assert status_of(error("because")) == (code, status, "because")


def test_an_unexpected_error_is_logged_and_reveals_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        code, status, sentence = status_of(KeyError("a secret"))
    assert (code, status) == (grpc.StatusCode.INTERNAL, 500)
    assert sentence == "internal error; the server's log has the details"
    assert "a secret" in caplog.text
