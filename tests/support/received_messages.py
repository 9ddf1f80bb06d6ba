"""A patch for programs in tests, see `forked_process`: each message and header that gRPC receives is kept in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from grpc import _channel, _common

from tests.support.secret_draw import RECEIVED_FILE

_deserialize, _handle_event = _common.deserialize, _channel._handle_event


def _keep(content: bytes) -> None:
    with Path(os.environ[RECEIVED_FILE]).open("ab") as file:  # appends of several processes do not mix
        file.write(content + b"\n")


def _deserialize_and_keep(content: bytes, deserializer: Any) -> Any:
    _keep(content)
    return _deserialize(content, deserializer)


def _handle_event_and_keep(event: Any, state: Any, deserializer: Any) -> Any:
    found = _handle_event(event, state, deserializer)
    _keep(repr((state.initial_metadata, state.trailing_metadata, state.details)).encode())
    return found


setattr(_common, "deserialize", _deserialize_and_keep)
setattr(_channel, "_handle_event", _handle_event_and_keep)
