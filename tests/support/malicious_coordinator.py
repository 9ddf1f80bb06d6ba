"""A coordinator in an attacker's hands: any reply to any call of the Control service, over real gRPC and mutual TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from moonfed.blobs.store import ref_of_bytes
from moonfed.control.codec import RECORDS
from moonfed.control.devices import DeviceResult
from moonfed.control.run_settings import DEFAULTS
from moonfed.transport.client import to_message
from moonfed.transport.identity import save_identity
from moonfed.transport.replies import DIGESTS, NAMES
from moonfed.v1 import blob_pb2, control_pb2
from tests.support.authority import Authority

SERVICE = control_pb2.DESCRIPTOR.services_by_name["Control"]
CHUNK = 1 << 16
# What terminals obey, or show in another order than it was written.
SEQUENCES = {
    "clear the screen": "\x1b[2J\x1b[H",
    "write the clipboard (OSC 52)": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "C1 controls": "\x9b2J\x9d0;title\x9c",
    "forged line": "fine\nmoonfed-coordinator: all is well",
    "carriage return": "failed\rfinished",
    "bidi override": "\u202egpj.exe\u202c",
    "line separator": "a\u2028b",
}
BAD_NAMES = ("../x", "/etc/cron.d/x", "a/b", "..", "-rf", "two\nlines", "\x1b[2J", "\u202ename", "x" * 129, "\u00fc")


@dataclass
class Malicious:
    """The attacker's replies by method: one message or several, an error's details, or bytes that are no message."""

    authority: Authority = field(default_factory=Authority)
    replies: dict[str, Message | Iterable[Message] | str | bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    address: str = ""

    def put(self, content: bytes) -> blob_pb2.Blob:
        """Store a blob."""
        ref = ref_of_bytes(content)
        self.blobs[ref.sha256] = content
        return to_message(ref)

    def write_identity(self, directory: Path) -> Path:
        """Write an operator's identity at this coordinator."""
        key, certificate = self.authority.issue("operator", "operator")
        save_identity(directory, address=self.address, ca=self.authority.pem, certificate=certificate, key=key)
        return directory

    def answer(self, method: str, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Yield the serialised replies of a method."""
        if method == "Fetch" and method not in self.replies:
            content = self.blobs[blob_pb2.FetchRequest.FromString(request).sha256]
            for start in range(0, len(content), CHUNK):
                yield blob_pb2.Chunk(data=content[start : start + CHUNK]).SerializeToString()
            return
        reply = self.replies[method]
        if isinstance(reply, str):
            context.set_details(reply)
            context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
        elif isinstance(reply, bytes):
            yield reply
        else:
            for message in [reply] if isinstance(reply, Message) else reply:
                yield message.SerializeToString()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    def __init__(self, malicious: Malicious) -> None:
        self._malicious = malicious

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        method = SERVICE.methods_by_name[details.method.rpartition("/")[2]]

        def stream(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._malicious.answer(method.name, request, context)

        def once(request: bytes, context: grpc.ServicerContext) -> bytes:
            return next(stream(request, context), b"")

        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: stream(next(requests), context))
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(once)


@contextmanager
def malicious_coordinator() -> Iterator[Malicious]:
    """Serve on loopback with mutual TLS."""
    found = Malicious()
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[_Handlers(found)])
    credentials = grpc.ssl_server_credentials([found.authority.issue("server", "server")], found.authority.pem, True)
    found.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield found
    finally:
        server.stop(None).wait()


def filled(kind: type[Message], text: str) -> Message:
    """Return a message with every part set: names, digests and settings well-formed, and all other text `text`."""
    message = kind()
    _fill(message, text)
    return message


def _fill(message: Any, text: str) -> None:
    kind = message.DESCRIPTOR.full_name.removeprefix("moonfed.v1.")
    for part in message.DESCRIPTOR.fields:
        value, entry = getattr(message, part.name), part.message_type
        if entry is not None and hasattr(value, "items"):
            name = entry.full_name.removeprefix("moonfed.v1.")
            key = _word(f"{name}.key", text)
            if entry.fields_by_name["value"].message_type is not None:
                _fill(value[key], text)
            else:
                value[key] = _value(entry.fields_by_name["value"], f"{name}.value", text)
        elif entry is not None:
            _fill(value.add() if hasattr(value, "add") else value, text)
        elif hasattr(value, "append"):
            value.append(_value(part, f"{kind}.{part.name}", text))
        elif part.containing_oneof is None or part.containing_oneof.name.startswith("_"):
            setattr(message, part.name, _value(part, f"{kind}.{part.name}", text))


def _value(part: FieldDescriptor, place: str, text: str) -> object:
    if part.type == part.TYPE_STRING:
        return _word(place, text)
    return b"bytes" if part.type == part.TYPE_BYTES else 1


def _word(place: str, text: str) -> str:
    return WORDS.get(place) or ("cam-1" if place in NAMES else "ab" * 32 if place in DIGESTS else text)


def _words() -> dict[str, str]:
    """Return a word for each field of a record that is one of several, by MESSAGE.FIELD."""
    found = {"RoundOutcomes.OutcomesEntry.value": "counted", "Run.settings": DEFAULTS.to_json()}
    found |= dict.fromkeys(("Metric.name", "HeldOutScore.MetricsEntry.key"), "accuracy")
    found["HeldOutScore.counts_of"] = "samples"
    for kind in (*RECORDS, DeviceResult):
        for name, hint in get_type_hints(kind).items():
            if get_origin(hint) is Literal:
                found[f"{kind.__name__}.{name}"] = get_args(hint)[0]
    return found


WORDS = _words()
