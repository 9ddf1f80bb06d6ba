"""Pages and files of the console."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.console.app import PAGES, allowed_hosts
from moonfed.coordinator.console.assets import load_assets
from moonfed.coordinator.console.settings import ConsoleSettings
from tests.support.console_process import ConsoleProcess

pytestmark = pytest.mark.slow


def test_every_page_is_the_same_file_and_holds_no_secret(console: ConsoleProcess) -> None:
    with console.client() as stranger:
        shell = stranger.get("/").text
        for page in PAGES:
            assert stranger.get(page.replace("{version:number}", "1").replace("{", "").replace("}", "")).text == shell
        assert stranger.get("/nowhere").json() == {"error": "there is no such page"}
        assert "moonfed" in shell


def test_files_are_served_with_their_types_and_tags(console: ConsoleProcess) -> None:
    with console.client() as stranger:
        for name, asset in load_assets().items():
            reply = stranger.get(f"/static/{name}")
            assert (reply.status_code, reply.content) == (200, asset.content)
            assert reply.headers["content-type"] == asset.type
            again = stranger.get(f"/static/{name}", headers={"If-None-Match": reply.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")


def test_nothing_is_loaded_from_elsewhere() -> None:
    for name, asset in load_assets().items():
        text = asset.content.decode()
        for scheme in ("https://", "http://", "//cdn"):
            if not name.startswith("vendor/"):
                assert scheme not in text.replace("http://www.w3.org/2000/svg", ""), name
        for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert sink not in text, name


def test_the_console_answers_to_its_own_names() -> None:
    local = ConsoleSettings(identities=(), port=8480)
    assert {"127.0.0.1:8480", "localhost:8480", "[::1]:8480"} == set(allowed_hosts(local))
    served = ConsoleSettings(
        identities=(),
        host="10.0.0.1",
        port=443,
        names=("console.example.org",),
        certificate=Path("c"),
        key=Path("k"),
        password_file=Path("p"),
    )
    assert allowed_hosts(served) == ["10.0.0.1:443", "console.example.org"]
