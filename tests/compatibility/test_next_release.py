"""Fleets of this release and a later one, which has another setting, another plan interface and a later contract."""

from __future__ import annotations

import json

import pytest

from moonfed.errors import MoonfedError
from moonfed.version import RELEASE
from tests.compatibility.programs import Programs, programs_of
from tests.federation.conftest import Federation

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

DEVICES = ("cam-1", "cam-2")  # of this release, and of the later one
ROUNDS = ("--rounds", "2", "--minimum-devices", "2", "--cohort", "all", "--quorum", "100%")


@pytest.mark.parametrize("coordinator", ["this", "later"])
def test_a_later_release_is_in_the_fleet(coordinator: str, federation: Federation, later: Programs) -> None:
    """Run a later release's bundle on this release's device, by the graphs, which both know."""
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
