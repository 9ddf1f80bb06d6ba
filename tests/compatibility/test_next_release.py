"""This release next to a later one, which has another setting, another plan interface and a later contract."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from moonfed.errors import MoonfedError
from moonfed.version import CONTRACT_VERSION, PLAN_INTERFACE, RELEASE
from tests.compatibility.installed_release import install, packages_of
from tests.compatibility.programs import Programs, programs_of
from tests.federation.conftest import Federation
from tests.proto.control.test_added_setting import DECLARATION
from tests.support.session_cache import cached
from tools.build_release import build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LATER = "77.0.0"
LATER_CONTRACT = f"{CONTRACT_VERSION.partition('.')[0]}.77"
LATER_PLAN = "torchscript/77"
DEVICES = ("cam-1", "cam-2")  # of this release, and of the later one
ROUNDS = ("--rounds", "2", "--minimum-devices", "2", "--cohort", "all", "--quorum", "100%")


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """This tree as a later release."""

    def make(directory: Path) -> None:
        # A program knows its interpreter by its path, so the environment is made where it will be.
        final = directory.with_suffix(".environment")
        install(build_wheel(tmp_path_factory.mktemp("wheel")), final)
        packages = packages_of(final) / "moonfed"
        edit(packages / "version.py", {RELEASE: LATER, CONTRACT_VERSION: LATER_CONTRACT, PLAN_INTERFACE: LATER_PLAN})
        file, place, added = DECLARATION
        edit(packages / Path(file).relative_to("proto/moonfed"), {place: place + added})
        directory.mkdir()

    marker = cached(b"a later release", make)
    return Programs(marker.with_suffix(".environment") / "bin")


def edit(file: Path, changes: Mapping[str, str]) -> None:
    text = file.read_text()
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    file.write_text(text)


@pytest.mark.parametrize("coordinator", ["this", "later"])
def test_a_later_release_is_in_the_fleet(coordinator: str, federation: Federation, later: Programs) -> None:
    """Its bundle runs on this release's device by the graphs, which both know."""
    this = Programs()
    serving, other = (this, later) if coordinator == "this" else (later, this)
    with programs_of(federation, serving):
        federation.serve()
    for device, programs in zip(DEVICES, (this, later), strict=True):
        with programs_of(federation, programs):
            federation.enrol(device)
            federation.start_device(device)
    federation.until_online(2)
    chosen = ("--patience", "3") if serving is later else ()
    with programs_of(federation, later):
        federation.start_run(later.bundle(), "r", *ROUNDS, *chosen)
    assert federation.until_finished("r").status == "finished"
    counted = [(one.round, one.attempt, sorted(one.counted)) for one in federation.rounds("r")]
    assert counted == [(number, 1, [*DEVICES]) for number in (1, 2)]
    watched = other("moonfed-coordinator", "run", "watch", "r", *federation.operator, "--json").splitlines()
    assert json.loads(watched[-1])["run"]["status"] == "finished"
    shown = {programs: programs.json("moonfed-coordinator", "run", "show", "r", *federation.operator)["settings"]
             for programs in (this, later)}  # fmt: skip
    assert "patience" not in shown[this]
    assert shown[later] == shown[this] | {"patience": 3 if serving is later else 0}
    if serving is this:
        is_told_what_is_missing(federation, later)


def is_told_what_is_missing(federation: Federation, later: Programs) -> None:
    words = ("run", "start", str(later.bundle()), "--name", "patient", "--patience", "3", *federation.operator)
    with pytest.raises(MoonfedError) as error:
        later("moonfed-coordinator", *words)
    assert "patience (= 3)" in str(error.value)
    assert RELEASE in str(error.value)
