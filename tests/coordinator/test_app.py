"""A coordinator in this process, without gRPC: restarts do not change the result of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from moonfed.control.kinds import Amount
from moonfed.coordinator.app import Coordinator
from moonfed.coordinator.records import AttemptId
from moonfed.server_rules.fedadam import FedAdam
from moonfed.server_rules.fedavgm import FedAvgM
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from tests.support.coordinator import PARAMETERS, SCAFFOLD, SIZE, make_bundle, model_values
from tests.support.in_process_coordinator import ALL, NAMES, device_info, opened, party, play, started, trained, watched


async def course(state: Path, directory: Path, rule: ServerRule, stop_requests: Sequence[int]) -> dict[str, bytes]:
    """Run four rounds, restarting the coordinator after some; return the final global state."""
    directory.mkdir()
    for number, last in enumerate((*stop_requests, 4)):
        async with opened(state) as coordinator:
            if number == 0:
                await started(coordinator, make_bundle(**SCAFFOLD, server_rule=rule))
            parties = [asyncio.create_task(party(coordinator, name, directory, last)) for name in NAMES]
            await watched(coordinator, "round_committed", last)
            await asyncio.gather(*parties)
    async with opened(state) as coordinator:
        newest = coordinator.storage.store.latest_round("run", "committed")
        assert newest
        assert (newest.id.round, newest.counted) == (4, NAMES)
        return {role: coordinator.storage.blobs.read(ref) for role, ref in newest.blobs.items()}


@pytest.mark.parametrize("rule", [FedAvgM(server_momentum=0.7), FedAdam(), MeanRule(weighting="uniform")])
def test_the_global_state_is_bit_identical_across_restarts(tmp_path: Path, rule: ServerRule) -> None:
    found: list[dict[str, bytes]] = []

    async def scenario() -> None:
        for number, stop_requests in enumerate([(), (1, 3), (2,)]):
            found.append(await course(tmp_path / f"state-{number}", tmp_path / f"own-{number}", rule, stop_requests))

    play(scenario())
    assert found[0] == found[1] == found[2]
    own = {"fedavgm": {"momentum"}, "fedadam": {"first_moment", "second_moment"}, "mean": set[str]()}
    assert set(found[0]) == {"model", "variate"} | own[rule.name]
    changes = [
        np.random.default_rng([round_, device]) for round_ in range(1, 5) for device in range(3)
    ]  # N is 3, so c is the sum over the rounds of the mean change
    drawn = [(chance.uniform(1, 2, SIZE), chance.normal(size=15))[1] for chance in changes]
    np.testing.assert_allclose(model_values(found[0]["variate"], PARAMETERS), sum(drawn) / 3, rtol=1e-4, atol=1e-5)


def test_a_coordinator_that_was_restarted_knows_when_each_device_counted_last(tmp_path: Path) -> None:
    """Otherwise SCAFFOLD's devices would start from an older c_i, or from none. The second round counts two devices."""
    told: dict[tuple[int, str], AttemptId | None] = {}

    async def deliver(coordinator: Coordinator, name: str) -> None:
        async with coordinator.devices.connect(device_info(name)) as session:
            work = await anext(aiter(session.assignments()))
            told[work.id.round, name] = work.counted
            if (work.id.round, name) == (2, "party-2"):
                await coordinator.devices.decline(work.id, name, "busy")
            else:
                await coordinator.updates.submit_files(*trained(work, name, tmp_path))
            await watched(coordinator, "round_committed", work.id.round)

    async def scenario() -> None:
        for round_ in (1, 2, 3):
            async with opened(tmp_path / "state") as coordinator:
                if round_ == 1:
                    settings = replace(ALL, rounds=3, quorum=Amount(count=2))
                    await started(coordinator, make_bundle(**SCAFFOLD), settings)
                await asyncio.gather(*(deliver(coordinator, name) for name in NAMES))

    play(scenario())
    first, second = (AttemptId(run="run", round=round_, attempt=1) for round_ in (1, 2))
    assert [told[1, name] for name in NAMES] == [None, None, None]
    assert [told[2, name] for name in NAMES] == [first, first, first]
    assert [told[3, name] for name in NAMES] == [second, second, first]
