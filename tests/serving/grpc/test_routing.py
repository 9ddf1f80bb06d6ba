"""Admission and pools of gRPC calls, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from moonfed.serving.grpc.receiving import ReceivingCalls
from moonfed.serving.grpc.routing import MAX_STREAMS, RoutingInterceptor, ThreadPools
from moonfed.serving.grpc.sending import UnreadAnswers
from moonfed.serving.requests.access import AccessControl
from moonfed.serving.requests.api_keys import ApiKeys
from moonfed.serving.requests.thread_pool import ElasticThreadPool
from tests.support.gates import FOR_EVER

SERVICE, HEALTH = "/inference.GRPCInferenceService/", "/grpc.health.v1.Health/"
KEYS = {"user": False, "admin": True}


class Aborted(Exception):
    """Raised by a context whose call is aborted."""


class Context:
    def __init__(self) -> None:
        self.aborted: tuple[grpc.StatusCode, str] | None = None

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.aborted = code, details
        raise Aborted


class Receiving:
    """Messages arrive at once; the kinds of their calls are recorded."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def receive(self, requests: Iterator[Any], context: object, kind: str) -> Any:
        self.kinds.append(kind)
        return next(requests, None)


class Unread:
    """Records the answers that are being sent."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []

    def add(self, context: object, content: bytes) -> bytes:
        self.answers.append(content)
        return content

    def each(self, context: object, contents: Iterable[bytes]) -> Iterator[bytes]:
        return (self.add(context, content) for content in contents)


class Keys:
    """API keys that are the names of their roles."""

    def find(self, key: str) -> SimpleNamespace | None:
        return SimpleNamespace(name=key, is_admin=KEYS[key]) if key in KEYS else None


@pytest.fixture
def pools() -> Iterator[ThreadPools]:
    pools = ThreadPools()
    yield pools
    for pool in (pools.health, pools.control, pools.rejections, pools.streams):
        pool.shutdown()


@pytest.fixture
def receiving() -> Receiving:
    return Receiving()


@pytest.fixture
def unread() -> Unread:
    return Unread()


Route = Callable[..., Any]


@pytest.fixture
def route(one_call: ElasticThreadPool, pools: ThreadPools, receiving: Receiving, unread: Unread) -> Route:
    """Return the handler of a method, whose service answers with the upper-case message."""

    def respond(message: str, context: object) -> str:
        return message.upper()

    def stream(messages: Iterator[str], context: object) -> Iterator[str]:
        return (message.upper() for message in messages)

    def watch(message: str, context: object, send_response_callback: Callable[[str], None]) -> None:
        send_response_callback(message.upper())

    handlers = {
        f"{SERVICE}ModelStreamInfer": grpc.stream_stream_rpc_method_handler(stream, response_serializer=str.encode),
        f"{HEALTH}Watch": grpc.unary_stream_rpc_method_handler(watch),
        f"{SERVICE}Unknown": None,
    }

    def route(method: str, *metadata: tuple[str, str], keys: bool = False, local: bool = True) -> Any:
        access = AccessControl(cast(ApiKeys, Keys()) if keys else None, local=local)
        interceptor = RoutingInterceptor(
            one_call, pools, access, cast(ReceivingCalls, receiving), cast(UnreadAnswers, unread)
        )
        details = SimpleNamespace(method=method, invocation_metadata=metadata)
        usual = grpc.unary_unary_rpc_method_handler(respond, response_serializer=str.encode)
        return interceptor.intercept_service(lambda each: handlers.get(each.method, usual), details)

    return route


def rejection(handler: Any) -> tuple[grpc.StatusCode, str] | None:
    """Return how a call is rejected on arrival; None if it is answered."""
    if handler.stream_stream is None:
        return None
    context = Context()
    try:
        handler.stream_stream(iter(()), context)
    except Aborted:
        return context.aborted
    return None


@pytest.mark.parametrize(
    ("method", "kind", "pool"),
    [
        (f"{SERVICE}ModelInfer", "inference", None),
        (f"{SERVICE}ServerReady", "health", "health"),
        (f"{SERVICE}ModelReady", "health", "health"),
        (f"{HEALTH}Check", "health", "health"),
        (f"{SERVICE}ModelMetadata", "control", "control"),
        (f"{SERVICE}RepositoryModelLoad", "control", "control"),
    ],
)
def test_a_unary_call_runs_on_the_threads_of_its_kind(
    method: str, kind: str, pool: str | None, route: Route, receiving: Receiving, unread: Unread, pools: ThreadPools
) -> None:
    handler = route(method)
    assert handler.stream_unary(iter(["hello"]), Context()) == b"HELLO"
    assert unread.answers == [b"HELLO"]
    assert receiving.kinds == [kind]
    found: ThreadPoolExecutor | None = getattr(handler.stream_unary, "experimental_thread_pool", None)
    assert found is (getattr(pools, pool) if pool else None)


def test_a_stream_occupies_a_thread_of_its_own_pool(
    route: Route, receiving: Receiving, unread: Unread, pools: ThreadPools
) -> None:
    handler = route(f"{SERVICE}ModelStreamInfer")
    assert list(handler.stream_stream(iter(["a", "b"]), Context())) == [b"A", b"B"]
    assert unread.answers == [b"A", b"B"]
    assert receiving.kinds == ["stream"] * 3  # the last one is the end
    assert handler.stream_stream.experimental_thread_pool is pools.streams


def test_a_watcher_occupies_no_thread(route: Route, pools: ThreadPools) -> None:
    handler, answers = route(f"{HEALTH}Watch"), list[str]()
    assert handler.stream_stream.experimental_non_blocking
    assert handler.stream_stream.experimental_thread_pool is pools.health
    handler.stream_stream(iter(["status"]), Context(), answers.append)
    handler.stream_stream(iter(()), Context(), answers.append)
    assert answers == ["STATUS"]


def test_a_call_without_a_message_is_rejected(route: Route) -> None:
    context = Context()
    with pytest.raises(Aborted):
        route(f"{SERVICE}ModelInfer").stream_unary(iter(()), context)
    assert context.aborted == (grpc.StatusCode.INVALID_ARGUMENT, "the call has no message; it must have one")


def test_an_unknown_method_is_grpcs_own_affair(route: Route) -> None:
    assert route(f"{SERVICE}Unknown") is None


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_inference_is_rejected_on_arrival_while_the_server_is_busy_or_stopping(
    method: str, route: Route, one_call: ElasticThreadPool
) -> None:
    with one_call.count_call():
        found = rejection(route(f"{SERVICE}{method}"))
        assert found
        assert found[0] is grpc.StatusCode.UNAVAILABLE
        assert found[1].startswith("Server is busy with 1 inference requests")
        assert rejection(route(f"{SERVICE}ServerLive")) is None
    one_call.stop_accepting()
    found = rejection(route(f"{SERVICE}{method}"))
    assert found
    assert found[1] == "Server is stopping and accepts no more inference requests"


def test_streams_are_bounded_and_leave_room_when_they_end(route: Route, pools: ThreadPools) -> None:
    pools.streams.count = MAX_STREAMS - 1
    assert rejection(route(f"{SERVICE}ModelStreamInfer")) is None
    pools.streams.submit(lambda: None).result(FOR_EVER)
    pools.streams.count = MAX_STREAMS
    found = rejection(route(f"{SERVICE}ModelStreamInfer"))
    assert found
    assert found[1] == f"Server is busy with {MAX_STREAMS} streams, as many as it takes at once"
    assert rejection(route(f"{SERVICE}ModelInfer")) is None


def test_the_number_of_streams_includes_those_that_failed(pools: ThreadPools) -> None:
    def fail() -> None:
        raise ValueError

    futures = [pools.streams.submit(function) for function in (fail, lambda: None)]
    for future in futures:
        future.exception(FOR_EVER)
    pools.streams.shutdown()  # after which all callbacks have run
    assert pools.streams.count == 0


@pytest.mark.parametrize(
    ("method", "key", "code"),
    [
        ("ModelInfer", None, "UNAUTHENTICATED"),
        ("ModelInfer", "wrong", "UNAUTHENTICATED"),
        ("ModelInfer", "user", None),
        ("ModelStreamInfer", None, "UNAUTHENTICATED"),
        ("ModelReady", None, "UNAUTHENTICATED"),
        ("ModelMetadata", "user", None),
        ("RepositoryModelLoad", "user", "PERMISSION_DENIED"),
        ("RepositoryModelLoad", "admin", None),
        ("RepositoryModelUnload", None, "UNAUTHENTICATED"),
        ("ServerLive", None, None),
        ("ServerReady", None, None),
    ],
)
def test_callers_need_the_key_of_their_role(method: str, key: str | None, code: str | None, route: Route) -> None:
    metadata = [("user-agent", "x"), *([("authorization", f"Bearer {key}")] if key else [])]
    found = rejection(route(SERVICE + method, *metadata, keys=True))
    assert (found[0].name if found else None) == code


def test_without_keys_only_this_machine_may_load_models(route: Route) -> None:
    assert rejection(route(f"{SERVICE}RepositoryModelLoad")) is None
    found = rejection(route(f"{SERVICE}RepositoryModelLoad", local=False))
    assert found
    assert found[0] is grpc.StatusCode.PERMISSION_DENIED
    assert rejection(route(f"{SERVICE}ModelInfer", local=False)) is None
