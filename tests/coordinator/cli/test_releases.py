"""The operator's commands for releases and deployments, as programs."""

from __future__ import annotations

import json

import pytest

from moonfed.bundle.files import write_bundle
from tests.support.coordinator import harmless_plan, make_bundle
from tests.support.coordinator_programs import Programs
from tests.support.release_fleet import Installer, create, signed_release, stop_all, stopped_run
from tests.support.releases import NAME

BUNDLE = make_bundle(plan=harmless_plan())


@pytest.fixture
def operated(programs: Programs) -> Programs:
    """A coordinator with a run that has ended and two versions of a release."""
    programs.serve("--name", "localhost")
    calls = programs.operator()
    write_bundle(programs.tmp / "bundle", BUNDLE)
    programs.command("run", "start", str(programs.tmp / "bundle"), "--name", "run")
    stopped_run(calls, "run")
    for version in (1, 2):
        create(calls, signed_release("run", BUNDLE, version))
    return programs


def document(programs: Programs, *words: str) -> dict[str, object]:
    found = json.loads(programs.command("release", *words, "--json"))
    assert isinstance(found, dict)
    return found


def test_releases_are_listed_and_shown(operated: Programs) -> None:
    listed = json.loads(operated.command("release", "list", "--json"))
    assert [(one["name"], one["version"], one["run"]) for one in listed] == [(NAME, 1, "run"), (NAME, 2, "run")]
    assert operated.command("release", "list").splitlines()[1].split()[:2] == [NAME, "1"]
    assert document(operated, "show", NAME)["version"] == 2
    assert "0.9000 on 100 samples" in operated.command("release", "show", NAME, "--version", "1")
    assert "there is no release 'other'" in operated.command("release", "list", "other", code=3)
    output = operated.command("release", "show", NAME, "--version", "7", code=3)
    assert "release 'digits' has no version 7; the newest is 2" in output


def test_a_version_is_deployed_widened_paused_and_rolled_back(operated: Programs) -> None:
    devices = [Installer(operated.device(f"cam-{number}")) for number in range(4)]
    for device in devices:
        device.device.connect().leave()
    assert "was never deployed" in operated.command("release", "status", NAME, code=3)
    first = document(operated, "deploy", NAME, "--version", "1", "--percent", "25")
    assert (first["number"], first["chosen"], first["matching"], first["states"]) == (1, 1, 4, {"pending": 1})
    assert "percent is 5" in operated.command("release", "widen", NAME, "--percent", "5", code=2)
    assert document(operated, "pause", NAME)["status"] == "paused"
    assert document(operated, "resume", NAME)["status"] == "active"
    output = operated.command("release", "widen", NAME)
    assert output == "deployment 1: version 1 of digits to 4 of 4 devices (100 %), active; 4 pending\n"
    for device in devices:
        device.start()
    while document(operated, "status", NAME)["deployments"][0]["states"] != {"installed": 4}:  # type: ignore[index]
        pass
    stop_all(devices)
    lines = operated.command("release", "status", NAME).splitlines()
    assert lines[0] == "deployment 1: version 1 of digits to 4 of 4 devices (100 %), active; 4 installed"
    assert lines[1].split()[:4] == ["device", "seen", "state", "has"]
    assert max(map(len, lines)) <= 80
    assert operated.command("release", "status").splitlines()[1].split()[:4] == [NAME, "1", "1", "active"]

    asked = operated.command("release", "roll-back", NAME, code=1)
    assert "Withdraw version 1 of digits (deployment 1) from 4 of 4 devices (100 %), which return to what" in asked
    assert "4 devices have no" in asked
    assert document(operated, "roll-back", NAME, "--yes")["states"] == {"returning": 4}
    output = operated.command("release", "roll-back", NAME, "--yes", code=4)
    assert "all deployments of 'digits' were rolled back" in output
    output = operated.command("release", "pause", NAME, code=4)
    assert "it cannot be paused" in output


def test_a_roll_back_that_leaves_devices_without_a_model_says_so(operated: Programs) -> None:
    device = Installer(operated.device("cam-0"))
    device.start()
    for version in (1, 2, 1):
        operated.command("release", "deploy", NAME, "--version", str(version))
        while document(operated, "status", NAME)["deployments"][-1]["states"] != {"installed": 1}:  # type: ignore[index]
            pass
    stop_all([device])
    asked = operated.command("release", "roll-back", NAME, "--to", "2", code=1)
    assert "Withdraw version 1 of digits (deployment 3)" in asked
    assert "will predict with none" not in asked
    for _ in range(2):  # a repetition, such as a script's
        assert operated.command("release", "roll-back", NAME, "--to", "2", "--yes", errors=True) == ""
    assert [one["status"] for one in document(operated, "status", NAME)["deployments"]] == [  # type: ignore[attr-defined]
        "active",
        "active",
        "rolled-back",
    ]
    assert operated.command("release", "roll-back", NAME, "--yes", errors=True) == ""
    output = operated.command("release", "roll-back", NAME, "--yes", errors=True)
    assert output == "warning: 1 device has no earlier version of digits and will predict with none\n"
    assert "to is 2" in operated.command("release", "roll-back", NAME, "--to", "2", "--yes", code=4)


def test_a_selection_of_no_device_is_an_error(operated: Programs) -> None:
    for device in ("cam-0", "cam-1"):
        operated.device(device).connect(labels={"site": "berlin"}).leave()
    operated.command("device", "label", "cam-0", "site=berlin")
    operated.command("device", "revoke", "cam-0")
    deploy = ("release", "deploy", NAME, "--version", "1")
    start = ("run", "start", str(operated.tmp / "bundle"), "--name", "second")
    for command in (deploy, start):
        for words in (["--label", "sitee=berlin"], ["--label", "site=berlin", "--trusted-labels"]):
            output = operated.command(*command, *words, code=2)
            assert "the selection is empty" in output
    assert operated.command("release", "status", NAME, code=3)
    operated.command(*start, "--label", "site=rome", "--allow-empty")
    assert document(operated, *deploy[1:], "--label", "site=berlin")["matching"] == 1
    assert document(operated, *deploy[1:], "--label", "site=rome", "--percent", "5", "--allow-empty")["chosen"] == 0
    operated.command("release", "widen", NAME, code=2)
    operated.command("release", "widen", NAME, "--allow-empty")


def test_mistakes_are_one_sentence(operated: Programs) -> None:
    assert "percent is 0.0" in operated.command("release", "deploy", NAME, "--version", "1", "--percent", "0", code=2)
    assert "label is 'berlin'" in operated.command(
        "release", "deploy", NAME, "--version", "1", "--label", "berlin", code=2
    )
    assert "variant is 'float16'" in operated.command(
        "release", "deploy", NAME, "--version", "1", "--variant", "float16", code=2
    )
    assert "release 'digits' has no version 9" in operated.command("release", "deploy", NAME, "--version", "9", code=3)
