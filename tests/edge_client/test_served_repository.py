"""A device's repository in real servers, Triton and moonfed's, which answer through deployments and roll-backs."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from moonfed.edge_client.state.releases import ReleaseStore
from tests.support.device_releases import classifier, make_release
from tests.support.gates import until
from tests.support.model_repositories import directly
from tests.support.server_process import served
from tests.support.triton import triton

pytestmark = pytest.mark.slow

INPUTS = np.random.default_rng(4).normal(size=(4, 6)).astype(np.float32)
EXPECTED = {version: directly(classifier(seed=version), {"inputs": INPUTS})[0] for version in (1, 2, 3)}
POLLING = ("--model-control-mode=poll", "--repository-poll-secs=1")


class Asker(threading.Thread):
    """Asks a server again and again, and keeps the versions that answered and whatever was wrong."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address, self._stop_asking = address, threading.Event()
        self.newest, self.versions, self.wrong = 0, set[int](), list[object]()

    def run(self) -> None:
        given = InferInput("inputs", list(INPUTS.shape), "FP32").set_data_from_numpy(INPUTS)
        with InferenceServerClient(self._address) as client:
            try:
                while not self._stop_asking.is_set():
                    answer = client.infer("digits", [given])
                    self.newest = int(answer.get_response().model_version)
                    self.versions.add(self.newest)
                    if not np.allclose(answer.as_numpy("probabilities"), EXPECTED[self.newest], atol=1e-6):
                        self.wrong.append(f"an answer of version {self.newest}")
            except Exception as error:
                self.wrong.append(error)

    def end(self) -> None:
        self._stop_asking.set()
        self.join()


def install(state: Path, version: int) -> None:
    release = make_release(version, model=classifier(seed=version))
    ReleaseStore(state).install(release.files(state / "blobs", version))


@pytest.mark.timeout(240)
def test_servers_answer_through_deployments_and_roll_backs_without_a_failed_request(tmp_path: Path) -> None:
    state = tmp_path / "state"
    install(state, 1)
    repository = state / "repository"
    with ExitStack() as stack:
        ours = stack.enter_context(served(repository, tmp_path / "ours.log", "--poll-seconds", "0.1"))
        theirs = stack.enter_context(triton(repository, tmp_path, *POLLING))
        askers = [Asker(server.grpc) for server in (ours, theirs)]
        for asker in askers:
            asker.start()
            stack.callback(asker.end)

        def answers(version: int) -> None:
            until(lambda: all(asker.newest == version for asker in askers) or any(asker.wrong for asker in askers))
            assert not [asker.wrong for asker in askers if asker.wrong]

        answers(1)
        install(state, 2)
        answers(2)
        ReleaseStore(state).switch("digits", 1, 3)
        answers(1)
        install(state, 3)
        answers(3)
        for asker in askers:
            asker.end()
    assert not [asker.wrong for asker in askers if asker.wrong]
    assert [asker.versions for asker in askers] == [{1, 2, 3}] * 2
