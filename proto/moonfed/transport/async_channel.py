"""An operator's channel for asyncio, whose replies are checked before a program sees them: see replies.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import grpc
from grpc import aio

from moonfed.errors import Corrupt
from moonfed.transport.checked_channel import Method, Parse, read
from moonfed.transport.client import client_options, parse_address, require_loopback
from moonfed.transport.identity import Identity


def open_async_channel(address: str, identity: Identity | None) -> aio.Channel:
    """Return a channel with mutual TLS, or in plaintext to this machine if there is no identity."""
    if identity is None:
        require_loopback(parse_address(address)[0])
        return _checked(aio.insecure_channel(address, client_options()))
    credentials = grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)
    return _checked(aio.secure_channel(address, credentials, client_options()))


def _checked(channel: aio.Channel) -> aio.Channel:
    return cast(aio.Channel, _CheckedChannel(channel))


class _CheckedChannel:
    """The part of a channel that programs use; gRPC returns bytes, which are parsed here."""

    def __init__(self, channel: aio.Channel) -> None:
        opened: Any = channel
        self._channel = opened
        self.close = channel.close

    def unary_unary(self, method: str, response_deserializer: Parse | None = None, **options: object) -> Method:
        """Return a method with one reply."""
        call = self._channel.unary_unary(method, **options)

        async def checked(*request: object, **settings: object) -> object:
            return read(response_deserializer, await call(*request, **settings))

        return checked

    def unary_stream(self, method: str, response_deserializer: Parse | None = None, **options: object) -> Method:
        """Return a method with a stream of replies."""
        call = self._channel.unary_stream(method, **options)
        return lambda *request, **settings: _Replies(call(*request, **settings), response_deserializer)

    def stream_stream(self, method: str, response_deserializer: Parse | None = None, **options: object) -> Method:
        """Return a method with a stream of requests and one of replies."""
        call = self._channel.stream_stream(method, **options)
        return lambda *request, **settings: _Replies(call(*request, **settings), response_deserializer)


class _Replies:
    """A call with a stream of replies; it ends at the first malformed one."""

    def __init__(self, call: Any, parse: Parse | None) -> None:  # noqa: ANN401 - grpc's call has no public type
        self._call, self._parse = call, parse
        self._contents: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401 - a message
        if self._contents is None:
            self._contents = aiter(self._call)
        content = await anext(self._contents)
        try:
            return read(self._parse, content)
        except Corrupt:
            self._call.cancel()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - what the call has besides, such as `cancel`
        return getattr(self._call, name)
