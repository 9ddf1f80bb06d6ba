"""Every error has a gRPC status, and a status without metadata is an error."""

import grpc
import pytest

from moonfed import errors
from moonfed.transport.grpc_status import from_rpc_error, to_status

# Parts may define errors of their own, which they translate themselves.
KINDS = [kind for kind in errors.MoonfedError.__subclasses__() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_status(kind: type[errors.MoonfedError]) -> None:
    assert to_status(kind("x"))[0] not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def test_a_status_without_our_metadata_is_still_translated() -> None:
    class Failure(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.NOT_FOUND

        def details(self) -> str:
            return "gone"

        def trailing_metadata(self) -> tuple[()]:
            return ()

    assert isinstance(from_rpc_error(Failure()), errors.NotFound)
