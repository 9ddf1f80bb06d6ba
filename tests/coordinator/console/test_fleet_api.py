"""The data of the pages about devices, from a federation."""

from __future__ import annotations

import pytest

from tests.coordinator.console.conftest import HOSTILE, Federation
from tests.support.console_process import Page

pytestmark = pytest.mark.slow


def test_devices_are_listed_with_models_and_filtered_by_label(federation: Federation, page: Page) -> None:
    rows = page.rows("/api/devices")
    assert [row["device"] for row in rows] == ["cam-0", "cam-1", "cam-2", "cam-3"]
    assert all(row["online"] for row in rows)
    assert [row["device"] for row in page.rows("/api/devices", label=f"site={HOSTILE}")] == ["cam-1", "cam-3"]
    assert page.client.get("/api/devices", params={"label": "x"}).status_code == 400
    while sum(row["models"] == {"digits": 1} for row in page.rows("/api/devices")) < 2:
        pass
    assert page.rows("/api/devices", run="pilot")[0]["ineligible"] == ""


def test_a_device_has_certificates_models_and_a_history(page: Page) -> None:
    found = page.get("/api/devices/cam-1")
    assert found["labels"] == {"site": HOSTILE}
    assert len(found["certificates"]) == 1
    history = [row for row in page.rows("/api/devices/cam-1/history") if row["run"] == "pilot"]
    declined = next(row for row in history if row["outcome"] == "declined")
    assert (declined["round"], declined["reason"]) == (2, HOSTILE)
    assert sum(row["outcome"] == "counted" for row in history) == 2
    assert page.client.get("/api/devices/other").status_code == 404
    assert page.client.get("/api/devices/other/history").status_code == 404
