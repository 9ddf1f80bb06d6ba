"""Devices that train and evaluate by arithmetic, whose scores a test can compute."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from moonfed.errors import MoonfedError
from moonfed.fleet.evaluation import MIN_HOLDOUT, EvaluationTask, HoldoutScores
from moonfed.fleet.messages import read_assignment, read_evaluation
from moonfed.v1 import control_pb2
from tests.faults.fleet import SAMPLES, Coordinators, LightDevice
from tests.support.coordinator import OperatorCalls, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moonfed.edge_client.agent.connection import FleetConnection

PAUSE = 0.05  # seconds of an evaluation, so that there is such a thing as the middle of several


def scores_of(device: str, round_: int) -> HoldoutScores:
    """Return a device's scores of the global model of a round: different for every device and model."""
    digest = hashlib.sha256(f"{device}/{round_}".encode()).digest()
    samples = MIN_HOLDOUT + digest[0]
    return HoldoutScores(samples=samples, score=digest[1] / 256, local_score=digest[2] / 256)


class ScoringDevice(LightDevice):
    """A device that also evaluates models, in the connection's thread."""

    def __init__(self, directory: Path, name: str, samples: int, address: str) -> None:
        super().__init__(directory, name, samples, address)
        self.asked: list[EvaluationTask] = []
        self.acknowledged: list[tuple[str, int, int]] = []

    def _connect(self, link: FleetConnection) -> None:
        for reply in link.connect({}, self._samples, seconds=3600.0):
            if reply.HasField("assignment"):
                self._take_part(link, read_assignment(reply.assignment))
            elif reply.HasField("evaluation"):
                self._evaluate(link, read_evaluation(reply.evaluation))

    def _evaluate(self, link: FleetConnection, task: EvaluationTask) -> None:
        self.asked.append(task)
        link.fetch(task.model, self._blobs, self._wanted)
        time.sleep(PAUSE)
        link.report_evaluation(task, scores_of(self.name, task.round))
        self.acknowledged.append(task.key)


@contextmanager
def scoring_devices(enrolled: Coordinators, addresses: Sequence[str]) -> Iterator[list[ScoringDevice]]:
    """Run the enrolled fleet, each device at one of the addresses in turn."""
    with ExitStack() as stack:
        devices = []
        for number, (name, samples) in enumerate(SAMPLES.items()):
            device = ScoringDevice(enrolled.tmp / name, name, samples, addresses[number % len(addresses)])
            stack.callback(device.stop)
            device.start()
            devices.append(device)
        yield devices


def evaluate(calls: OperatorCalls, run: str, round_: int) -> None:
    """Ask for an evaluation; repeating that is harmless."""
    request = control_pb2.EvaluateRunRequest(run=run, round=round_, deadline_seconds=3600.0)
    ask(calls.control.EvaluateRun, request)


def evaluations(coordinators: Coordinators, run: str) -> list[control_pb2.DeviceEvaluation]:
    """Return a run's evaluations on devices; none while the coordinator is away."""
    calls = coordinators.operator()
    request = control_pb2.ListEvaluationsRequest(run=run)
    with calls.channel:
        try:
            found = ask(lambda asked, timeout: list(calls.control.ListEvaluations(asked, timeout=timeout)), request)
        except MoonfedError:
            return []
    return [entry.on_devices for entry in found]


def require_complete(found: Sequence[control_pb2.DeviceEvaluation], rounds: int) -> None:
    """Assert that every model was evaluated by each device once, with its own scores."""
    assert [(entry.round, entry.number) for entry in found] == [(round_, 1) for round_ in range(rounds + 1)]
    for entry in found:
        assert not entry.waiting
        assert not entry.skipped
        scores = {one.device: (one.samples, one.score, one.local_score) for one in entry.scores}
        computed = {name: scores_of(name, entry.round) for name in SAMPLES}
        assert scores == {name: (one.samples, one.score, one.local_score) for name, one in computed.items()}
