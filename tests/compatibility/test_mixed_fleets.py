"""Programs of the last release and of this one as one fleet: whoever coordinates, devices and operators may be others.

Each release has a device. The operator's programs, and with them the bundle and the released model, are those of the
release that does not coordinate.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compatibility.installed_release import Release
from tests.compatibility.interface import used_metrics
from tests.compatibility.programs import Programs, programs_of
from tests.federation.conftest import PATIENCE, Federation
from tests.support.prometheus import DEVICE, scrape
from tests.support.server_process import answer_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DEVICES = ("cam-1", "cam-2")  # of the last release, and of this one
ROUNDS = ("--rounds", "2", "--minimum-devices", "2", "--cohort", "all", "--quorum", "100%")
ALARMING = re.compile(r" (?:WARNING|ERROR) (?!the plan's process: .*onnxruntime|.* has ended )")  # a stopped run
FIRST, SECOND = "by-commands", "by-client"
REPORTS = (("run", "list"), ("run", "show", FIRST), ("device", "list"), ("device", "show", "cam-1"),
           ("release", "list"), ("release", "status", "digits"), ("token", "list"), ("operator", "list"))  # fmt: skip
# Does with the Python client what a notebook would do; prints what it saw.
NOTEBOOK = """
import json, sys
from moonfed.client import Coordinator, Ended, RoundCommitted, Snapshot
from moonfed.errors import NotFound

identity, bundle, name = sys.argv[1:]
with Coordinator(identity) as coordinator:
    started = coordinator.start(bundle, name=name, rounds=2, minimum_devices=2, cohort="all", quorum="100%")
    events = list(coordinator.watch(name))
    coordinator.record_metrics(name, {"f1": 0.5})
    evaluation = coordinator.evaluate(name, deadline=60)
    again = coordinator.start(bundle, name=name + "-again", recipe=started.settings)
    coordinator.stop(again.run)
    try:
        coordinator.run("nothing")
    except NotFound as error:
        problem = str(error)
    print(json.dumps({
        "first": type(events[0]) is Snapshot,
        "committed": [(event.round, sorted(event.counted)) for event in events if type(event) is RoundCommitted],
        "status": events[-1].run.status,
        "metrics": coordinator.rounds(name)[-1].metrics["f1"],
        "weights": sorted(coordinator.weights(name)),
        "scores": len(evaluation.on_devices.scores),
        "runs": [run.run for run in coordinator.runs()],
        "devices": [device.device for device in coordinator.devices(online=True)],
        "problem": problem,
    }))
"""


def shape(value: Any) -> Any:
    """Return the keys of a JSON document; in a list, those of any item."""
    if isinstance(value, Mapping):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [merged(map(shape, value))]
    return None


def merged(shapes: Iterator[Any]) -> Any:
    found: Any = None
    for one in shapes:
        found = {**(found or {}), **one} if isinstance(one, Mapping) else found or one
    return found


def lost(before: Any, after: Any, place: str = "") -> list[str]:
    """Return the keys of one shape that another one lacks."""
    if isinstance(before, Mapping):
        if not isinstance(after, Mapping):
            return [place]
        here = [f"{place}.{key}" for key in before if key not in after]
        return here + [
            line for key in before.keys() & after.keys() for line in lost(before[key], after[key], f"{place}.{key}")
        ]
    if isinstance(before, list):
        return lost(before[0], after[0], f"{place}[]") if isinstance(after, list) else [place]
    return []


@pytest.mark.parametrize("coordinator", ["last", "this"])
def test_the_releases_work_together(coordinator: str, federation: Federation, last: Release) -> None:
    theirs, ours = Programs(last.programs), Programs()
    serving, operating = (theirs, ours) if coordinator == "last" else (ours, theirs)
    bundle = operating.bundle()
    with programs_of(federation, serving):
        ready = federation.serve("coordinator", "--metrics-port", "0", "--disk-budget", "10GB")
    for device, programs in zip(DEVICES, (theirs, ours), strict=True):
        with programs_of(federation, programs):
            federation.enrol(device)
            federation.start_device(device, "--holdout", "0.2")
    federation.until_online(2)
    with programs_of(federation, operating):
        federation.start_run(bundle, FIRST, *ROUNDS)
    watched = operating("moonfed-coordinator", "run", "watch", FIRST, *federation.operator, "--json").splitlines()
    assert json.loads(watched[-1])["run"]["status"] == "finished"
    assert counted(federation, FIRST) == [(1, 1, [*DEVICES]), (2, 1, [*DEVICES])]
    a_notebook_works(federation, operating, bundle)
    a_release_is_deployed(federation, operating)
    commands_report_the_same(federation, theirs, ours)
    for device, programs in zip(DEVICES, (ours, theirs), strict=True):
        is_served(federation, programs, device)
    for name in (*DEVICES, "coordinator"):
        assert [line for line in federation.log(name).splitlines() if ALARMING.search(line)] == []
    if serving is ours:
        exported = set(re.findall(r"^# TYPE (\w+)", scrape(ready["metrics_port"]), re.MULTILINE))
        of_devices = {name for name in used_metrics(last.directory / "deploy") if name.startswith(DEVICE)}
        assert used_metrics(last.directory / "deploy") - of_devices <= exported


def counted(federation: Federation, name: str) -> list[tuple[int, int, list[str]]]:
    return [(one.round, one.attempt, sorted(one.counted)) for one in federation.rounds(name)]


def a_notebook_works(federation: Federation, operating: Programs, bundle: Path) -> None:
    command = [operating.python, "-c", NOTEBOOK, str(federation.state / "operator"), str(bundle), SECOND]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert (saw["first"], saw["status"], saw["metrics"], saw["scores"]) == (True, "finished", 0.5, 2)
    assert set(map(str, saw["committed"])) <= {str([number, [*DEVICES]]) for number in (1, 2)}
    assert saw["runs"] == [FIRST, SECOND, f"{SECOND}-again"]
    assert saw["devices"] == [*DEVICES]
    assert "'nothing'" in saw["problem"]
    assert len(saw["weights"]) > 4
    assert counted(federation, SECOND) == [(1, 1, [*DEVICES]), (2, 1, [*DEVICES])]


def a_release_is_deployed(federation: Federation, operating: Programs) -> None:
    data = ("--data", str(federation.parts / "device-3.npz"))
    words = ("release", "create", FIRST, "--name", "digits", *data, *federation.operator)
    assert operating.json("moonfed-export", *words)["version"] == 1
    operating("moonfed-coordinator", "release", "deploy", "digits", "--version", "1", *federation.operator)
    end = time.monotonic() + PATIENCE
    while set(states := device_states(federation, operating)) != set(DEVICES) or set(states.values()) != {"installed"}:
        assert time.monotonic() < end, states
        time.sleep(0.1)


def device_states(federation: Federation, operating: Programs) -> dict[str, str]:
    found = operating.json("moonfed-coordinator", "release", "status", "digits", *federation.operator)
    return {one["device"]: one["state"] for one in found["devices"]}


def commands_report_the_same(federation: Federation, theirs: Programs, ours: Programs) -> None:
    for words in REPORTS:
        before, after = (
            shape(programs.json("moonfed-coordinator", *words, *federation.operator)) for programs in (theirs, ours)
        )
        assert lost(before, after, " ".join(words)) == []


def is_served(federation: Federation, programs: Programs, device: str) -> None:
    """Serve what a device of one release installed with the server of the other one."""
    repository = federation.directory / device / "repository"
    with np.load(federation.parts / "device-3.npz") as arrays:
        inputs = arrays["inputs"][:3]
    name = f"server of {device}"
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    server = str(programs.directory / "moonfed-export")
    federation.fleet.start(name, server, "serve", str(repository), *ports, "--json")
    ready = json.loads(federation.fleet.first_line(name))
    tensor = {"name": "inputs", "shape": list(inputs.shape), "datatype": "UINT8", "data": inputs.ravel().tolist()}
    document = {"inputs": [tensor], "outputs": [{"name": "probabilities"}]}
    status, answer = answer_of(f"127.0.0.1:{ready['http_port']}", "/v2/models/digits/infer", document)
    assert (status, answer["outputs"][0]["shape"]) == (200, [3, 10])
    assert "nv_inference_request_success" in scrape(ready["metrics_port"])
