"""The data of the pages about models, from a federation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.console.control import load_operators
from moonfed.coordinator.console.model_api import MOST_BYTES, _evaluation, fetch_small
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.errors import Corrupt, ResourceExhausted
from tests.coordinator.console.conftest import Federation
from tests.support.console_process import Page
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_models_are_listed_with_their_deployments(page: Page) -> None:
    found = page.get("/api/models")
    assert [(row["name"], row["version"]) for row in found["rows"]] == [("digits", 1), ("digits", 2)]
    assert [deployment["name"] for deployment in found["deployments"]] == ["digits"]
    first = page.get("/api/models/digits")["deployments"][0]
    assert (first["number"], first["version"], first["chosen"]) == (1, 1, 2)
    assert len(page.rows("/api/models/digits/devices")) >= 2
    assert page.client.get("/api/models/other").status_code == 404


def test_a_version_has_cards_and_evaluations(page: Page) -> None:
    found = page.get("/api/models/digits/2")
    assert sorted(found["files"]) == ["float16", "float32"]
    float32 = found["files"]["float32"]
    assert float32["card"].startswith("# digits, version 2\n")
    assert float32["evaluation"]["metrics"]["accuracy"] == pytest.approx(found["score"])
    assert "model.onnx" in [file["name"] for file in float32["files"]]
    assert page.client.get("/api/models/digits/9").status_code == 404


def test_a_cards_picture_runs_no_script(page: Page) -> None:
    assert page.get("/api/models/digits/2")["files"]["float16"]["pictures"] == ["confusion.svg"]
    shown = page.client.get("/api/models/digits/2/float16/confusion.svg")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/svg+xml")
    assert "sandbox" in shown.headers["content-security-policy"].split("; ")
    assert page.client.get("/api/models/digits/2/float16/model.onnx").status_code == 404


def test_only_small_genuine_files_are_shown(federation: Federation) -> None:
    async def fetch(ref: BlobRef) -> bytes:
        (operator,) = load_operators(ConsoleSettings(identities=(Path(federation.identity),))).values()
        try:
            return await fetch_small(operator.client, ref)
        finally:
            await operator.client.close()

    manifest = federation.bundle.ref
    assert asyncio.run(fetch(manifest)) == federation.bundle.manifest.to_bytes()
    with pytest.raises(Corrupt):
        asyncio.run(fetch(BlobRef(manifest.sha256, manifest.size - 1)))
    with refused(ResourceExhausted, "size"):
        asyncio.run(fetch(BlobRef(manifest.sha256, MOST_BYTES + 1)))


@pytest.mark.parametrize("content", [b"[1]", b"{", b'{"loss": NaN}', b"[" * 100_000, b"\xff"])
def test_an_evaluation_that_is_no_json_object_is_left_out(content: bytes) -> None:
    assert _evaluation(content) is None
    assert _evaluation(b'{"loss": 1}') == {"loss": 1}
