"""A whole coordinator as a state machine: for any sequence of events, records and results agree.

Operators and devices call the real `Coordinator` on a real state directory, many calls at once; it crashes between any
two steps that make something durable, and starts again. `ledger` computes the expected outcome independently.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec
from unittest import mock

import pytest
from hypothesis import HealthCheck, strategies
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from moonfed.blobs.store import ref_of_bytes
from moonfed.blobs.tensors import Vector
from moonfed.bundle.manifest import WEIGHTS_FILE
from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Run
from moonfed.coordinator.api.operator_api import OperatorApi
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.records import RoundRecord
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rounds.state import OpenRound
from moonfed.coordinator.runs.create import NewRun
from moonfed.coordinator.storage.blobs import garbage_collection
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.errors import AlreadyExists, NotFound, WrongState
from moonfed.fleet.assignment import Assignment
from tests.faults.crash import Crash
from tests.faults.ledger import Key, Ledger, Sent
from tests.faults.simulated_fleet import (
    SimulatedCoordinator,
    SimulatedDevice,
    submit_invalid,
    submit_rest,
    submit_update,
)
from tests.support.coordinator import make_bundle, model_values

pytestmark = pytest.mark.slow

P = ParamSpec("P")
LIVES = int(os.environ.get("MOONFED_LIVES", "0"))  # `make search` asks for many, others each time
DEADLINE, HEARTBEAT_TIMEOUT = 100.0, 20.0
COMMON = RunSettings(
    rounds=3, minimum_devices=2, deadline=DEADLINE, heartbeat_timeout=HEARTBEAT_TIMEOUT, seed=5, trusting=True
)
KINDS = (
    replace(COMMON, rounds=4, keep_last=1, keep_every=3, max_attempts=3),
    replace(COMMON, cohort=Amount(fraction=0.5), over_selection=0.5, keep_last=2, keep_every=0),
    replace(COMMON, rounds=5, cohort=Amount(count=3), asynchronous=2, max_staleness=2),
    replace(
        COMMON,
        rounds=5,
        quorum=Amount(fraction=1.0),
        asynchronous=3,
        max_staleness=0,
        keep_last=1,
        keep_every=3,
        max_attempts=3,
    ),
    replace(COMMON, cohort=Amount(count=2), quorum=Amount(fraction=1.0)),
)
DRAW = Draw(bytes(range(32)))  # the same sequence of events must have the same consequences
OPERATORS_DEEDS = ("start", "start", "stop", "pause", "resume", "resume", "delete", "prune")
BUNDLE = make_bundle(start=1.0)
picks = strategies.integers(0, 11)  # one of what there is then
at_once = strategies.booleans()  # whether the next thing happens meanwhile
steps = strategies.integers(0, 40)  # after which it crashes
MOVES = ("comes", "comes", "comes", "stays", "stays", "goes", "leaves")
DEEDS = (
    *("hands in", "hands in", "sends", "sends"),
    *("nothing", "nothing", "nothing", "nothing", "nothing", "nothing"),
    *("sends another", "breaks off", "sends rubbish", "declines", "reports"),
)


class Life(RuleBasedStateMachine):
    """Operators, devices, the clock and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        place = tempfile.mkdtemp()
        self.stack.callback(shutil.rmtree, place)
        self.root, self.state = Path(place), Path(place) / "state"
        logging.disable(logging.CRITICAL)
        self.stack.callback(logging.disable, logging.NOTSET)
        self.crash = Crash()
        # Each start sweeps all that nothing refers to.
        self.stack.enter_context(mock.patch.object(garbage_collection, "UPLOAD_SECONDS", -1.0))
        self.stack.enter_context(self.crash.installed())
        self.devices = [SimulatedDevice(f"cam-{number}", 10 * number) for number in range(1, 5)]
        self.others = [SimulatedDevice(f"later-{number}", 10) for number in range(3)]
        self.books: dict[str, Ledger] = {}
        self.doubtful: set[str] = set()  # runs that a crash kept us from hearing of
        self.settled, self.numbers = True, itertools.count(1)  # of names that are used once

    @initialize(seed=strategies.integers(0, 1 << 16), kind=picks)
    def begins(self, seed: int, kind: int) -> None:
        self.coordinator = SimulatedCoordinator(self.state, self.crash, seed << 16)
        self.start_run(kind)
        for device in self.devices:
            device.connect(self.coordinator)
        self.go_on()

    @property
    def operators(self) -> OperatorApi:
        return self.coordinator.running.operators

    # The fleet

    @rule(moves=strategies.tuples(*4 * [strategies.sampled_from(MOVES)]), at_once=at_once)
    def devices_come_and_go(self, moves: tuple[str, ...], at_once: bool) -> None:
        for device, move in zip(self.devices, moves, strict=True):
            if move == "comes":
                device.connect(self.coordinator)
            elif move == "goes":
                device.leave()
            elif move == "leaves":
                device.announce_leaving(self.coordinator)
        self.go_on(at_once)

    @rule(deeds=strategies.tuples(*4 * [strategies.sampled_from(DEEDS)]), pick=picks, at_once=at_once)
    def devices_answer(self, deeds: tuple[str, ...], pick: int, at_once: bool) -> None:
        """Let devices submit concurrently; the only device with an accepted update gets a receipt."""
        working = [(device, deed) for device, deed in zip(self.devices, deeds, strict=True) if deed != "nothing"]
        lone = self.settled and len(working) == 1 and not at_once and not self.crash.is_armed
        wanted = set[tuple[str, Key]]()
        for device, deed in working:
            if work := self.some_work(device, pick):
                if lone and deed in ("hands in", "sends") and self.is_wanted(device, work):
                    wanted = {(work.id.run, key_of(device, work))}
                self.answer(device, work, deed)
        self.go_on(at_once)
        assert all(key in self.books[run].receipts for run, key in wanted)

    @rule(deeds=strategies.tuples(*4 * [strategies.sampled_from(DEEDS)]), pick=picks, steps=steps)
    def it_crashes_as_devices_answer(self, deeds: tuple[str, ...], pick: int, steps: int) -> None:
        self.crash.after(steps)
        self.devices_answer(deeds, pick, at_once=False)

    @rule(pick=picks, deed=strategies.sampled_from(OPERATORS_DEEDS), at_once=at_once)
    def an_operator_acts(self, pick: int, deed: str, at_once: bool) -> None:
        if deed == "start":
            self.start_run(pick)
        elif pick < len(self.books):
            name = sorted(self.books)[pick]
            if deed == "stop":
                self.coordinator.begin(accepting(self.operators.stop_run, name))
            elif deed == "pause":
                self.coordinator.begin(accepting(self.operators.pause_run, name))
            elif deed == "resume":
                self.coordinator.begin(accepting(self.operators.resume_run, name))
            else:
                at_once = False
                self.rest()
                if name in self.books:  # else a crash came before its start was recorded
                    (self.delete_run if deed == "delete" else self.prune_run)(name)
        self.go_on(at_once)

    # The world

    @rule(seconds=strategies.sampled_from([1.0, HEARTBEAT_TIMEOUT + 1, DEADLINE + 1]))
    def time_passes(self, seconds: float) -> None:
        self.coordinator.loop.advance(seconds)
        self.go_on()

    @rule(dismissed=strategies.booleans(), alone=strategies.booleans(), crash=strategies.none() | steps)
    def it_restarts(self, dismissed: bool, alone: bool, crash: int | None) -> None:
        """Restart at any point, possibly with a crash during the start or with the devices offline."""
        self.restart(dismissed=dismissed, alone=alone, crash_after=crash)
        self.go_on()

    @rule(pick=picks)
    def a_disk_damages_an_update(self, pick: int) -> None:
        self.rest()
        kept = [(name, key) for name, book in sorted(self.books.items()) for key in sorted(book.uncounted)]
        if pick < len(kept):
            name, key = kept[pick]
            path = self.update_file(name, key)
            content = path.read_bytes()
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            self.books[name].damaged.add(key)

    # In detail

    def start_run(self, kind: int) -> None:
        if len(self.books) == 3:
            return
        name, settings = f"run-{next(self.numbers):04}", KINDS[kind % len(KINDS)]
        for content in BUNDLE.files.values():
            with suppress(OSError):
                self.coordinator.running.storage.blobs.put_bytes(content)
        self.books[name] = Ledger(name, settings, [model_values(BUNDLE.contents[WEIGHTS_FILE])])
        self.doubtful.add(name)
        self.coordinator.begin(self._start(name, settings))

    async def _start(self, name: str, settings: RunSettings) -> None:
        with suppress(NotFound):  # the bundle was not stored whole
            bundle, signature = BUNDLE.ref.sha256, BUNDLE.signature_sha256
            new = NewRun(name=name, manifest=bundle, signature=signature, settings=settings, draw=DRAW)
            await self.operators.start_run(new)
            self.doubtful.discard(name)

    def delete_run(self, name: str) -> None:
        running = self.view(name).active
        self.doubtful |= set() if running else {name}
        self.coordinator.begin(accepting(self.operators.delete_run, name))
        self.rest()
        assert (name in self.books) >= running

    def prune_run(self, name: str) -> None:
        if not self.crash.is_armed:
            running = self.view(name).active
            self.coordinator.ask(self.operators.prune_run(name, Retention(last=1, every=3)))
            self.books[name].prune(last=1, every=3, running=running)

    def restart(self, *, dismissed: bool, alone: bool = False, crash_after: int | None = None) -> None:
        present = [device for device in self.devices if device.online and not alone]
        self.coordinator.restart(dismissed=dismissed, crash_after=crash_after)
        for device in present:
            device.connect(self.coordinator)

    def some_work(self, device: SimulatedDevice, pick: int) -> Assignment | None:
        """Return the device's latest assignment of one of the runs, however old."""
        found = [work for run, work in sorted(device.work.items()) if run in self.books]
        return found[pick % len(found)] if found else None

    def answer(self, device: SimulatedDevice, work: Assignment, deed: str) -> None:
        coordinator, book = self.coordinator.running, self.books[work.id.run]
        header, content, sent = device.trained(work.id, self.before(work), variant=deed == "sends another")
        match deed:
            case "hands in" | "sends" | "sends another":
                book.send(key_of(device, work), sent)
                path = None if deed.startswith("sends") else self.root / f"update-{next(self.numbers)}"
                self.coordinator.begin(accepting(self.submit, header, content, path, sent))
            case "breaks off":
                self.coordinator.begin(accepting(submit_rest, coordinator, header, content[:100], commit=False))
            case "sends rubbish":
                self.coordinator.begin(accepting(submit_invalid, coordinator, header))
            case "declines":
                self.coordinator.begin(accepting(coordinator.devices.decline, work.id, device.name, "busy"))
            case "reports":
                self.coordinator.begin(accepting(coordinator.devices.report, work.id, device.name, 0.5))

    async def submit(self, header: UpdateHeader, content: bytes, path: Path | None, sent: Sent) -> None:
        await submit_update(self.coordinator.running, header, content, path)
        self.books[header.id.run].acknowledge((header.id.round, header.id.attempt, header.device), sent)

    def before(self, work: Assignment) -> Vector:
        return self.books[work.id.run].models[work.id.round - 1]

    def update_file(self, run: str, key: Key) -> Path:
        round_, attempt, device = key
        return self.state / "spool" / run / f"{round_}-{attempt}" / "updates" / "model" / device

    # What must hold

    def go_on(self, at_once: bool = False) -> None:
        """Let pending work proceed, unless the next event is to happen at once."""
        self.settled = False
        if not at_once:
            self.rest()

    def rest(self) -> None:
        """Run until nothing changes; crashed processes are restarted."""
        self.coordinator.settle()
        while self.crash.has_struck:
            self.restart(dismissed=False)
            self.coordinator.settle()
        self.settled = True
        self.check()

    def check(self) -> None:
        blobs: set[str] = set()
        attempts: set[str] = set()
        for name, book in list(self.books.items()):
            try:
                view = self.view(name)
            except NotFound:
                assert name in self.doubtful, "a run is gone"
                del self.books[name]
                continue
            records = self.coordinator.ask(self.records(name))
            book.read(records, self.coordinator.running.storage.blobs.read)
            self.check_run(book, view)
            blobs |= {ref_of_bytes(content).sha256 for content in BUNDLE.files.values()}
            blobs |= {record.model.sha256 for record in records if record.model}
            attempts |= {f"{name}/{round_}-{attempt}" for round_, attempt in needed(book, view, self.open_round(view))}
        self.doubtful.clear()
        assert {path.name for path in self.state.glob("blobs/*/*")} == blobs, "the blobs that are needed, and no others"
        assert {str(path.relative_to(self.state / "spool")) for path in self.state.glob("spool/*/*")} <= attempts

    def check_run(self, book: Ledger, view: Run) -> None:
        waits, current = book.uncounted, self.open_round(view)
        assert view.round == len(book.models) - 1
        if not view.active:
            book.held = {}
            assert not book.uncounted, "what was acknowledged is in a model, or its round was abandoned"
            assert (view.status == "finished") == (view.round == book.settings.rounds)
            assert (view.status == "failed") == bool(view.reason)
            return
        assert view.waiting, "it says what it waits for"
        for round_, attempt, device in waits:
            if current:
                if book.is_held((round_, attempt, device)) and len(current.reused) == current.drawn:
                    continue  # the cohort is smaller than the number of held updates
                assert device in current.reported
                here = (current.round, current.reused.get(device, current.attempt))
                assert book.settings.asynchronous or here == (round_, attempt)
            else:
                assert book.is_held((round_, attempt, device))
            content = self.update_file(book.run, (round_, attempt, device)).read_bytes()
            assert ref_of_bytes(content) == book.receipts[round_, attempt, device].ref
        for present in self.devices:
            work = present.work.get(book.run)
            if present.online and work and work.id.round == view.round + 1:
                content = self.coordinator.running.storage.blobs.read(work.blobs["model"])
                assert (model_values(content) == self.before(work)).all()

    def is_wanted(self, device: SimulatedDevice, work: Assignment) -> bool:
        """Return True if a complete update of this work must be accepted now."""
        book, current = self.books[work.id.run], self.open_round(self.view(work.id.run))
        if current is None or not device.online or device.name not in current.cohort:
            return False
        settled = current.reported | current.declined | (current.rejected if book.settings.asynchronous else set())
        same = book.settings.asynchronous or (current.round, current.attempt) == (work.id.round, work.id.attempt)
        return bool(same and device.name not in settled)

    def open_round(self, view: Run) -> OpenRound | None:
        """Return the state machine's open round, if operators see it."""
        served = self.coordinator.running.runs.served.get(view.run)
        return served.state.open if served and view.open_round else None

    def view(self, name: str) -> Run:
        return self.coordinator.ask(self.operators.run(name))

    async def records(self, name: str) -> list[RoundRecord]:
        return self.coordinator.running.storage.store.past_rounds(name, None, 10_000)

    # The end

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None and hasattr(self, "coordinator"):
                self.everything_ends()
        finally:
            if hasattr(self, "coordinator"):
                self.crash.strike()
                self.coordinator.end()
            self.stack.close()

    def everything_ends(self) -> None:
        """Once the devices are online and report, every run ends, whatever happened before."""
        self.crash.over()
        self.rest()
        for _ in range(60):
            running = [name for name in self.books if self.view(name).active]
            if not running:
                break
            for name in running:
                self.coordinator.begin(accepting(self.operators.resume_run, name))
            everybody = [*self.devices, *self.others]  # who was rejected waits for others to bring the run on
            for device in everybody:
                device.leave()
            self.coordinator.settle()
            for device in everybody:
                device.connect(self.coordinator)
            self.rest()
            for device in everybody:
                for name in running:
                    if work := device.work.get(name):
                        self.answer(device, work, "hands in")
            self.rest()
            self.coordinator.loop.advance(61.0)
            self.rest()
        assert not running, [self.view(name).waiting for name in running]
        self.coordinator.restart(dismissed=True)
        self.rest()


async def accepting(call: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Make a call that may be too late or no longer allowed."""
    with suppress(AlreadyExists, WrongState, NotFound):
        await call(*args, **kwargs)


def key_of(device: SimulatedDevice, work: Assignment) -> Key:
    return work.id.round, work.id.attempt, device.name


def needed(book: Ledger, view: Run, current: OpenRound | None) -> set[tuple[int, int]]:
    """Return the attempts, each with its round, whose updates may arrive or wait."""
    if not view.active:
        return set()
    if book.settings.asynchronous:
        newest = view.round + 1
        return {(begun, 1) for begun in range(max(1, newest - book.settings.max_staleness), newest + 1)}
    if current:
        return {(current.round, attempt) for attempt in {current.attempt, *current.reused.values()}}
    return {(view.round + 1, attempt) for attempt in book.held.values()}


@pytest.mark.timeout(900 + LIVES)
def test_every_acknowledged_update_counts_once_whatever_happens() -> None:
    chosen = hypothesis_settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    if LIVES:
        chosen = hypothesis_settings(chosen, max_examples=LIVES, print_blob=True)
    else:
        chosen = hypothesis_settings(chosen, max_examples=32, derandomize=True)
    run_state_machine_as_test(Life, settings=chosen)
