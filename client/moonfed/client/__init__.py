"""A Python client of a coordinator: start and watch runs, read rounds, devices and weights, deploy releases.

`Coordinator` is synchronous, `AsyncCoordinator` asynchronous; both have the same calls. docs/python-client.md has an
example of each.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before gRPC is imported: errors are raised, not printed

from moonfed.bundle.manifest import Metric
from moonfed.client.aio.coordinator import AsyncCoordinator
from moonfed.client.sync.coordinator import Coordinator
from moonfed.control.devices import (
    Certificate,
    Device,
    DeviceActivity,
    DeviceResult,
    NewToken,
    Token,
)
from moonfed.control.evaluations import DeviceEvaluation, DeviceScore, Evaluation
from moonfed.control.events import (
    DeviceDeclined,
    DeviceLeft,
    DeviceLost,
    DevicesJoined,
    Ended,
    Event,
    Interrupted,
    MetricsRecorded,
    Paused,
    Progress,
    Resumed,
    RoundAbandoned,
    RoundCommitted,
    RoundOpened,
    Snapshot,
    UpdateReceived,
    UpdateRejected,
    Waiting,
)
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.kinds import Amount
from moonfed.control.releases import DeployedDevice, Deployment, Release
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Incident, Ineligible, OpenRound, Round, Run

__all__ = [
    "Amount",
    "AsyncCoordinator",
    "Certificate",
    "Coordinator",
    "DeployedDevice",
    "Deployment",
    "Device",
    "DeviceActivity",
    "DeviceDeclined",
    "DeviceEvaluation",
    "DeviceLeft",
    "DeviceLost",
    "DeviceResult",
    "DeviceScore",
    "DevicesJoined",
    "Ended",
    "Evaluation",
    "Event",
    "HeldOutScore",
    "Incident",
    "Ineligible",
    "Interrupted",
    "Metric",
    "MetricsRecorded",
    "NewToken",
    "OpenRound",
    "Paused",
    "Progress",
    "Release",
    "Resumed",
    "Round",
    "RoundAbandoned",
    "RoundCommitted",
    "RoundOpened",
    "Run",
    "RunSettings",
    "Snapshot",
    "Token",
    "UpdateReceived",
    "UpdateRejected",
    "Waiting",
]
