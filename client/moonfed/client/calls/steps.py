"""Steps of a call: what to send, wait for or transfer; each client performs them in its own way.

A call is a generator that yields steps and is sent their results, so its logic exists once and knows no gRPC.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from moonfed.blobs.store import BlobRef

ATTEMPTS = 3  # of a call that may be repeated, before the coordinator counts as unavailable

T = TypeVar("T")
Reply = TypeVar("Reply", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A call of the Control service; the result is its reply, or the list of its replies if it `streams`."""

    method: str
    request: Message
    streams: bool = False
    attempts: int = ATTEMPTS


@dataclass(frozen=True, slots=True)
class Send:
    """An upload of files, by blob; there is no result."""

    files: Mapping[BlobRef, Path]


@dataclass(frozen=True, slots=True)
class Fetch:
    """A download; the result is the blob's bytes, verified."""

    ref: BlobRef


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause; there is no result."""

    seconds: float


Step: TypeAlias = Ask | Send | Fetch | Sleep
Steps: TypeAlias = Generator[Step, Any, T]


def ask(reply: type[Reply], method: str, request: Message, *, attempts: int = ATTEMPTS) -> Steps[Reply]:
    """Make a call; one that must not be repeated has one attempt."""
    answer: Reply = yield Ask(method=method, request=request, attempts=attempts)
    return answer


def ask_all(reply: type[Reply], method: str, request: Message) -> Steps[list[Reply]]:
    """Make a call whose reply is a stream."""
    answers: list[Reply] = yield Ask(method=method, request=request, streams=True)
    return answers


def send(files: Mapping[BlobRef, Path]) -> Steps[None]:
    """Upload the files that the coordinator lacks."""
    yield Send(files)


def fetch(ref: BlobRef) -> Steps[bytes]:
    """Download a blob."""
    content: bytes = yield Fetch(ref)
    return content


def sleep(seconds: float) -> Steps[None]:
    """Pause."""
    yield Sleep(seconds)
