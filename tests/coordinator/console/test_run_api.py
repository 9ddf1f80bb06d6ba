"""The data of the pages about runs, from a federation."""

from __future__ import annotations

import json

import pytest

from tests.coordinator.console.conftest import HOSTILE, Federation
from tests.support.console_process import Page

pytestmark = pytest.mark.slow


def test_runs_are_listed_and_shown(federation: Federation, page: Page) -> None:
    row = next(one for one in page.rows("/api/runs") if one["run"] == "pilot")
    assert (row["status"], row["round"], row["rounds"], row["method"]) == ("finished", 3, 3, "fedavg")
    assert page.get("/api/runs/pilot")["model"]["sha256"] == federation.run("pilot").model.sha256
    assert page.client.get("/api/runs/other").status_code == 404


def test_what_a_run_with_privacy_has_spent_is_shown(federation: Federation, page: Page) -> None:
    privacy = {"epsilon": 90, "delta": 0.1, "noise_multiplier": 1.0}
    given = {"trusting": False, "cohort": 4, "population": 4, "clip_norm": 0.5, "quorum": 1, "privacy": privacy}
    federation.fleet.start("private", 1, federation.bundle, **given)
    federation.ended("private")
    shown = page.get("/api/runs/private")["privacy"]
    assert (shown["budget"], shown["releases"], shown["rounds"], shown["clip_norm"]) == (90, 1, 1, 0.5)
    assert 0 < shown["epsilon"] < 90
    assert page.get("/api/runs/pilot")["privacy"] is None


def test_rounds_have_metrics_and_the_newest_can_be_read_alone(page: Page) -> None:
    rows = page.rows("/api/runs/pilot/rounds")
    assert [row["round"] for row in rows if row["status"] == "committed"] == [1, 2, 3]
    assert rows[-1]["metrics"]["accuracy"] > 0.3
    assert page.rows("/api/runs/pilot/rounds", last="1") == rows[-1:]
    for last in ("-1", "x", "999999999", "1.5"):
        reply = page.client.get("/api/runs/pilot/rounds", params={"last": last})
        assert reply.status_code == 400
        assert reply.json()["error"].startswith(f"last is {last!r}; ")


def test_a_round_names_its_devices(page: Page) -> None:
    row = next(row for row in page.rows("/api/runs/pilot/rounds") if row["round"] == 2 and row["status"] == "committed")
    found = page.get(f"/api/runs/pilot/rounds/2/{row['attempt']}")
    assert (found["counted"], found["missing"]) == (["cam-0", "cam-2", "cam-3"], ["cam-1"])
    assert page.client.get("/api/runs/pilot/rounds/9/1").status_code == 404


def test_outcomes_are_by_device_and_round(page: Page) -> None:
    rows = page.rows("/api/runs/pilot/outcomes", last="100")
    second = next(row for row in rows if row["round"] == 2 and row["status"] == "committed")
    assert second["outcomes"]["declined"] == ["cam-1"]
    assert sorted(second["outcomes"]["counted"]) == ["cam-0", "cam-2", "cam-3"]


def test_evaluations_are_those_of_the_newest_model_or_of_one_round(page: Page) -> None:
    (newest,) = page.get("/api/runs/pilot/evaluations")["rows"]
    assert (newest["round"], newest["test_set"]) == (3, "test")
    assert sum(map(sum, newest["score"]["confusion"])) == newest["samples"] == 360
    (second,) = page.get("/api/runs/pilot/evaluations", round="2")["rows"]
    assert second["round"] == 2


def test_an_ended_run_streams_one_snapshot_and_ends(page: Page) -> None:
    with page.client.stream("GET", "/api/runs/pilot/live") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[0] == "event: snapshot"
    assert json.loads(lines[1].removeprefix("data: "))["status"] == "finished"
    assert page.client.get("/api/runs/other/live").status_code == 404
    assert HOSTILE not in lines[1]
