"""The guard rejects requests of other sites, and protects every response."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from moonfed.coordinator.console.guard import HEADERS, MOST_BODY, Guard, Proxy
from moonfed.observability.flood_log import LINES

HOST = "127.0.0.1:8480"
JSON: dict[str, Any] = {"Origin": f"http://{HOST}", "Content-Type": "application/json"}


def ask(
    method: str = "GET",
    path: str = "/",
    content: bytes = b"{}",
    client: str = "127.0.0.1",
    guard: Guard | None = None,
    **headers: str,
) -> httpx.Response:
    async def request() -> httpx.Response:
        chosen = guard or Guard(PlainTextResponse("served"), [HOST, "console.example.org"])
        transport = httpx.ASGITransport(chosen, client=(client, 1))
        given = {"Host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
        async with httpx.AsyncClient(transport=transport, base_url="http://any") as caller:
            return await caller.request(method, path, headers=given, content=content if method == "POST" else None)

    return asyncio.run(request())


def test_every_response_is_protected() -> None:
    for response in (ask(), ask(Host="evil.example"), ask("DELETE")):
        assert {name: response.headers[name] for name in HEADERS} == HEADERS
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert "strict-transport-security" not in response.headers
    assert ask(path="/api/runs").headers["cache-control"] == "no-store"
    secure = Guard(PlainTextResponse("served"), [HOST], secure=True)
    assert ask(guard=secure).headers["strict-transport-security"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:80", "localhost:8480.evil.example", ""])
def test_only_the_consoles_own_names_are_served(host: str) -> None:
    response = ask(Host=host)
    assert response.status_code == 421
    assert response.json()["error"] == f"host is {host!r}; it must be the console's own name: see --name"


@pytest.mark.parametrize("host", [HOST, "console.example.org", "console.example.org:443", "CONSOLE.example.org"])
def test_the_consoles_own_names_are_served(host: str) -> None:
    assert ask(Host=host).text == "served"


def test_changes_come_from_the_consoles_own_pages() -> None:
    assert ask("POST", **JSON).text == "served"
    for origin in ("http://evil.example", "null", "", f"ftp://{HOST}", f"http://{HOST}.evil.example"):
        assert ask("POST", **(JSON | {"Origin": origin})).status_code == 403
    assert ask("POST", Content_Type="application/json").status_code == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert ask("POST", **(JSON | {"Content-Type": kind})).status_code == 415


def test_reads_of_other_sites_are_rejected() -> None:
    assert ask(path="/api/runs", Sec_Fetch_Site="same-origin").text == "served"
    assert ask(path="/api/runs", Sec_Fetch_Site="cross-site").status_code == 403
    assert ask(path="/api/runs", Sec_Fetch_Site="same-site").status_code == 403
    assert ask(path="/", Sec_Fetch_Site="cross-site").text == "served"  # a link to the console


def test_methods_and_bodies_are_bounded() -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(method).status_code == 405
    assert ask("POST", content=b" " * (MOST_BODY + 1), **JSON).status_code == 413
    assert ask("POST", **(JSON | {"Content-Length": "many"})).status_code == 411


SECRET = "5" * 32


@pytest.mark.parametrize(
    ("client", "headers"),
    [
        ("10.0.0.3", {"X-Proxy-Secret": SECRET}),
        ("10.0.0.2", {}),
        ("10.0.0.2", {"X-Proxy-Secret": ""}),
        ("10.0.0.2", {"X-Proxy-Secret": SECRET[1:]}),
        ("10.0.0.2", {"X-Proxy-Secret": SECRET + "5"}),
        ("10.0.0.2", {"X-Proxy-Secret": f"{SECRET}, {SECRET}"}),
        ("10.0.0.2", {"Cookie": f"X-Proxy-Secret={SECRET}"}),
    ],
    ids=["other address", "no secret", "empty", "shorter", "longer", "doubled", "in a cookie"],
)
def test_behind_a_proxy_no_other_caller_is_served(client: str, headers: dict[str, Any]) -> None:
    proxy = Proxy(address="10.0.0.2", secret=SECRET.encode())
    behind: Any = Guard(PlainTextResponse("served"), [HOST], proxy=proxy)
    assert ask(guard=behind, client="10.0.0.2", X_Proxy_Secret=SECRET).text == "served"
    assert ask(guard=behind, client=client, **headers).status_code == 403
    assert SECRET not in repr(proxy)


def test_errors_that_anybody_can_repeat_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_: object, __: object, ___: object) -> None:
        raise RuntimeError("broken")

    guard = Guard(broken, [HOST])

    async def ask_often() -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", HOST.encode())]}
        for _ in range(1000):
            await guard(scope, broken, broken)  # type: ignore[arg-type]

    asyncio.run(ask_often())
    assert len(caplog.records) == LINES
    assert caplog.records[0].exc_info
