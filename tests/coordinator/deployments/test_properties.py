"""Deployments widened, paused, rolled back in any order, with kills: every device ends with what it should have."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
import sqlalchemy as sql
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moonfed.coordinator.storage.db import sqlite, tables
from moonfed.coordinator.storage.deployments import Arrival
from moonfed.coordinator.storage.store import Store
from moonfed.fleet.target_release import Outcome
from tests.support.releases import NAME, add_devices, add_releases, deployment, installed, report

pytestmark = pytest.mark.slow

VERSIONS = 4
PERCENTAGES = st.sampled_from([1.0, 10.0, 34.0, 50.0, 100.0])
SETTLED: list[Outcome] = ["declined", "failed", "fell-back"]

_choices = tables.deployed_devices.c


class Deployments(RuleBasedStateMachine):
    """Operators, a coordinator that is killed, and devices whose reports may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(mkdtemp())
        self.opened = [sqlite.open_store(self.directory / "coordinator.db")]
        add_releases(self.store, VERSIONS)
        self.has: dict[str, int] = {}  # the version that each device answers with
        self.refused: set[tuple[str, int]] = set()  # devices, and deployments that they settled against
        self.chosen: dict[int, set[str]] = {}  # devices, by deployment, as last seen
        self.taken: set[tuple[str, int]] = set()  # devices, and deployments by which they had a version

    @property
    def store(self) -> Store:
        return self.opened[-1]

    def teardown(self) -> None:
        for store in self.opened:
            store.close()
        shutil.rmtree(self.directory)

    @initialize(devices=st.integers(0, 12))
    def fleet(self, devices: int) -> None:
        self.join(devices)

    # Operators

    @precondition(lambda self: len(self.chosen) < 5)
    @rule(version=st.integers(1, VERSIONS), percent=PERCENTAGES)
    def deploy(self, version: int, percent: float) -> None:
        view = self.store.deployments.deploy(deployment(0, version, percent=percent), allow_empty=True)
        assert view.number == len(self.chosen) + 1
        self.chosen[view.number] = set()

    @precondition(lambda self: self.newest_stands())
    @rule(percent=PERCENTAGES)
    def widen(self, percent: float) -> None:
        newest = self.store.deployments.views(NAME)[-1]
        self.store.deployments.widen(NAME, max(percent, newest.percent))

    @precondition(lambda self: self.newest_stands())
    @rule()
    def pause(self) -> None:
        self.store.deployments.pause(NAME)

    @precondition(lambda self: self.newest_stands())
    @rule()
    def resume(self) -> None:
        self.store.deployments.resume(NAME)

    @precondition(lambda self: any(self.statuses()[number] != "rolled-back" for number in self.chosen))
    @rule()
    def roll_back(self) -> None:
        self.store.deployments.roll_back(NAME)

    # Devices

    @precondition(lambda self: len(self.has) < 30)
    @rule(devices=st.integers(1, 5))
    def join(self, devices: int) -> None:
        self.has |= dict.fromkeys(add_devices(self.store, devices, first=len(self.has)), 0)
        self.store.deployments.choose()

    @rule(data=st.data(), lost=st.booleans())
    def install(self, data: st.DataObject, lost: bool) -> None:
        """A device installs its target; it may be killed before it reports that."""
        self._take(data, "installed", lost=lost)

    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        self._take(data, "accepted", lost=False)

    @rule(data=st.data(), outcome=st.sampled_from(SETTLED))
    def refuse(self, data: st.DataObject, outcome: Outcome) -> None:
        self._take(data, outcome, lost=False)

    @rule(data=st.data())
    def connect(self, data: st.DataObject) -> None:
        if self.has:
            self._connect(data.draw(st.sampled_from(sorted(self.has))))

    @rule()
    def kill(self) -> None:
        """The coordinator is killed, and another one opens its database."""
        self.opened.append(sqlite.open_store(self.directory / "coordinator.db"))

    # What holds

    @invariant()
    def chosen_devices_stay_chosen_and_are_enough(self) -> None:
        for view in self.store.deployments.views(NAME):
            number = view.number
            chosen = {found.device for found in self.store.deployments.devices(NAME, number)}
            assert self.chosen[number] <= chosen
            self.chosen[number] = chosen
            assert len(chosen) <= math.ceil(len(self.has) * view.percent / 100 - 1e-9)
            assert sum(view.states.values()) == view.chosen == len(chosen)
        newest = self.store.deployments.views(NAME)[-1:]
        for view in newest:
            if view.status == "active":
                wanted = math.ceil(len(self.has) * view.percent / 100 - 1e-9)
                assert view.chosen == wanted

    @invariant()
    def targets_are_what_they_should_be(self) -> None:
        statuses, versions = self.statuses(), self.versions()
        for device in self.has:
            target = self._target(device)
            chose = [number for number in sorted(self.chosen, reverse=True) if device in self.chosen[number]]
            standing = [number for number in chose if statuses[number] != "rolled-back"]
            if target is None:
                continue
            if target[1]:
                assert target[0] in standing
                assert versions[target[0]] == target[1]
                assert (device, target[0]) not in self.refused or (device, target[0]) in self.taken
            else:
                assert self.has[device]
                assert any(statuses[number] == "rolled-back" for number in chose)

    def statuses(self) -> dict[int, str]:
        return {view.number: view.status for view in self.store.deployments.views(NAME)}

    def versions(self) -> dict[int, int]:
        return {view.number: view.version for view in self.store.deployments.views(NAME)}

    def newest_stands(self) -> bool:
        return bool(self.chosen) and self.statuses()[max(self.chosen)] != "rolled-back"

    @precondition(lambda self: bool(self.chosen))
    @rule()
    def everybody_obeys(self) -> None:
        """All devices connect and install their targets: then none has a version that was only rolled back."""
        for device in self.has:
            self._connect(device)
            for _ in range(VERSIONS + len(self.chosen)):
                target = self._target(device)
                if target is None or target[1] == self.has[device]:
                    break
                self._apply(device, *target, "installed", lost=False)
            else:
                raise AssertionError(f"{device} never has its target")
        statuses = self.statuses()
        for found in self.store.deployments.devices(NAME):
            device, has = found.device, found.installed
            assert has == self.has[device]
            by = [
                number
                for number, version in self.versions().items()
                if version == has and (device, number) in self.taken
            ]
            assert not has or any(statuses[number] != "rolled-back" for number in by)

    def _target(self, device: str) -> tuple[int, int] | None:
        for one in self.store.deployments.targets([device]).get(device, []):
            return one.target.deployment, one.target.version
        return None

    def _connect(self, device: str) -> None:
        has = (installed(self.has[device]),) if self.has[device] else ()
        self.store.deployments.connected([Arrival(device=device, installed=has, fingerprint="f")])
        self._learn(device)

    def _learn(self, device: str) -> None:
        had = sql.select(_choices.deployment).where(_choices.device == device, _choices.had)
        with self.store.deployments._transactions.read() as connection:
            self.taken |= {(device, number) for number in connection.execute(had).scalars()}

    def _take(self, data: st.DataObject, outcome: Outcome, *, lost: bool) -> None:
        aims = {device: target for device in self.has if (target := self._target(device))}
        if aims:
            device = data.draw(st.sampled_from(sorted(aims)))
            # A device does not decline what it predicts with.
            if outcome in ("installed", "accepted") or aims[device][1] not in (0, self.has[device]):
                self._apply(device, *aims[device], outcome, lost=lost)

    def _apply(self, device: str, number: int, version: int, outcome: Outcome, *, lost: bool) -> None:
        if outcome == "installed":
            self.has[device] = version
        if outcome in SETTLED:
            self.refused.add((device, number))
        elif outcome == "installed":
            self.refused.discard((device, number))
        if not lost:
            self.store.deployments.report(report(device, number, version, outcome, self.has[device], fingerprint="f"))
            if outcome == "installed" and version:
                self.taken.add((device, number))


TestDeployments = Deployments.TestCase
TestDeployments.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
