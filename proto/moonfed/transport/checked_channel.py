"""A gRPC channel whose replies are checked before a program sees them: see moonfed.transport.replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc

from moonfed.errors import Corrupt
from moonfed.transport.replies import read_reply

Parse = Callable[[bytes], Any]  # a generated message's FromString
Method = Callable[..., Any]


def checked(channel: grpc.Channel) -> grpc.Channel:
    """Return the channel for generated stubs, whose calls raise Corrupt for a malformed reply."""
    return cast(grpc.Channel, _CheckedChannel(channel))


class _CheckedChannel:
    """The part of a channel that programs use; gRPC returns bytes, which are parsed here."""

    def __init__(self, channel: grpc.Channel) -> None:
        opened: Any = channel
        self._channel = opened
        self.close = channel.close
        self.subscribe = channel.subscribe
        self.unsubscribe = channel.unsubscribe

    def unary_unary(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: Parse | None = None,
        **options: object,
    ) -> Method:
        """Return a method with one reply."""
        call = self._channel.unary_unary(method, request_serializer, **options)
        return lambda *request, **settings: read(response_deserializer, call(*request, **settings))

    def unary_stream(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: Parse | None = None,
        **options: object,
    ) -> Method:
        """Return a method with a stream of replies."""
        call = self._channel.unary_stream(method, request_serializer, **options)
        return lambda *request, **settings: _Replies(call(*request, **settings), response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: object = None,
        response_deserializer: Parse | None = None,
        **options: object,
    ) -> Method:
        """Return a method with a stream of requests and one of replies."""
        call = self._channel.stream_stream(method, request_serializer, **options)
        return lambda *request, **settings: _Replies(call(*request, **settings), response_deserializer)

    def __enter__(self) -> _CheckedChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Replies:
    """A call with a stream of replies; it ends at the first malformed one."""

    def __init__(self, call: Any, parse: Parse | None) -> None:  # noqa: ANN401 - grpc's call has no public type
        self._call, self._parse = call, parse

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - a message
        content = next(self._call)
        try:
            return read(self._parse, content)
        except Corrupt:
            self._call.cancel()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what the call has besides, such as `cancel`
        return getattr(self._call, name)


def read(parse: Parse | None, content: bytes) -> Any:  # noqa: ANN401 - a message, or bytes where nothing parses them
    """Return a checked message."""
    return read_reply(parse, content) if parse else content
