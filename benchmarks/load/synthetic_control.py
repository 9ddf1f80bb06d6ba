"""A Control service of a large fleet, without one: `python -m benchmarks.load.synthetic_control`.

It has a run with 1,000 rounds of 1,000 devices and an open round whose devices report their progress all the time.
Prints its port; ends with standard input.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from moonfed.control.run_settings import RunSettings
from moonfed.v1 import blob_pb2, control_pb2, control_pb2_grpc

DEVICES, ROUNDS, RUN = 1000, 1000, "large"
EVENTS = 1000  # a second
NAMES = [f"device-{number:04}" for number in range(DEVICES)]
OUTCOMES = ("counted",) * 90 + ("late", "declined", "lost", "missing", "rejected") * 2

BLOB = blob_pb2.Blob(sha256="0" * 64, size=1_000_000)


class SyntheticControl(control_pb2_grpc.ControlServicer):
    """The calls that the console's pages read."""

    def ListRuns(self, request: Any, context: Any) -> control_pb2.ListRunsReply:
        return control_pb2.ListRunsReply(runs=[_run()])

    def GetRun(self, request: Any, context: Any) -> control_pb2.Run:
        return _run()

    def ListRounds(self, request: Any, context: Any) -> Iterator[control_pb2.Round]:
        for number in range(ROUNDS - (request.last or ROUNDS) + 1, ROUNDS + 1):
            yield control_pb2.Round(
                run=RUN,
                round=number,
                attempt=1,
                status="committed",
                counted=NAMES[:900],
                missing=NAMES[900:],
                metrics={"accuracy": 1 - 0.9 / number**0.5, "loss": 2.3 / number**0.5, "train_loss": 2 / number**0.5},
                seconds=20,
                updates=900,
                phases={"training": 12, "upload": 5, "waiting": 1, "reduction": 1.5, "commit": 0.5},
                outcomes={"counted": 900, "late": 40, "declined": 30, "lost": 30},
                received_bytes=900_000_000,
                sent_bytes=1_000_000_000,
            )

    def ListEvaluations(self, request: Any, context: Any) -> Iterator[control_pb2.Evaluation]:
        return iter(())

    def WatchRun(self, request: Any, context: Any) -> Iterator[control_pb2.RunEvent]:
        yield control_pb2.RunEvent(kind="snapshot", run=_run())
        for number in itertools.count():
            if not context.is_active():
                return
            yield control_pb2.RunEvent(
                kind="progress",
                round=ROUNDS + 1,
                attempt=1,
                device=NAMES[number % DEVICES],
                fraction=(number // DEVICES % 50) / 50,
            )
            if number % 50 == 0:
                time.sleep(50 / EVENTS)

    def ListDevices(self, request: Any, context: Any) -> Iterator[control_pb2.Device]:
        if request.ineligible:
            return
        now = time.time()
        for number, name in enumerate(NAMES):
            yield control_pb2.Device(
                device=name,
                online=number % 10 > 0,
                last_seen=now,
                enrolled=now,
                labels={"site": f"site-{number % 20}", "board": "orin-nano", "firmware": f"2.{number % 7}"},
                platform={"architecture": "aarch64", "memory_bytes": "8000000000", "python": "3.10"},
                release="0.2.0",
                rounds=number,
                last_result=control_pb2.DeviceResult(run=RUN, round=ROUNDS, attempt=1, outcome="counted", time=now),
            )

    def GetDevice(self, request: Any, context: Any) -> control_pb2.Device:
        return control_pb2.Device(device=request.device, online=True)

    def ListDeviceHistory(self, request: Any, context: Any) -> Iterator[control_pb2.DeviceResult]:
        for number in range(request.last or ROUNDS, 0, -1):
            yield control_pb2.DeviceResult(run=RUN, round=number, attempt=1, outcome=OUTCOMES[number % 100], seconds=9)

    def ListRoundOutcomes(self, request: Any, context: Any) -> Iterator[control_pb2.RoundOutcomes]:
        draw = random.Random(1)
        for number in range(ROUNDS - (request.last or ROUNDS) + 1, ROUNDS + 1):
            outcomes = {name: draw.choice(OUTCOMES) for name in NAMES}
            yield control_pb2.RoundOutcomes(run=RUN, round=number, attempt=1, status="committed", outcomes=outcomes)

    def ListReleases(self, request: Any, context: Any) -> control_pb2.ListReleasesReply:
        release = control_pb2.Release(
            name="digits",
            version=1,
            run=RUN,
            round=ROUNDS,
            score=0.97,
            samples=10_000,
            manifest=BLOB,
            signature=BLOB,
        )
        return control_pb2.ListReleasesReply(releases=[release])

    def ListDeployments(self, request: Any, context: Any) -> control_pb2.ListDeploymentsReply:
        deployment = control_pb2.Deployment(
            name="digits",
            number=1,
            version=1,
            status="active",
            percent=100,
            matching=DEVICES,
            chosen=DEVICES,
            states={"installed": DEVICES},
        )
        return control_pb2.ListDeploymentsReply(deployments=[deployment])

    def ListDeployedDevices(self, request: Any, context: Any) -> Iterator[control_pb2.DeployedDevice]:
        for name in NAMES:
            yield control_pb2.DeployedDevice(device=name, deployment=1, version=1, installed=1, state="installed")

    def ListAuditRecords(self, request: Any, context: Any) -> Iterator[control_pb2.AuditRecord]:
        for number in range(request.newest):
            yield control_pb2.AuditRecord(number=number, name="ann", role="admin", call="StopRun", outcome="done")


def _run() -> control_pb2.Run:
    opened = control_pb2.OpenRound(round=ROUNDS + 1, attempt=1, cohort=NAMES, reported=NAMES[:100], target=900)
    return control_pb2.Run(
        run=RUN,
        status="running",
        settings=RunSettings(rounds=5000).to_json(),
        round=ROUNDS,
        method="fedavg",
        metric=control_pb2.Metric(name="accuracy", maximise=True, share=True),
        created=time.time(),
        open_round=opened,
        eligible=DEVICES,
        model=BLOB,
        initial_model=BLOB,
        manifest=BLOB,
    )


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    control_pb2_grpc.add_ControlServicer_to_server(SyntheticControl(), server)  # type: ignore[abstract]
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
