"""Output of `run show` for a run and its rounds."""

from __future__ import annotations

from moonfed.coordinator.cli.format import run_lines
from moonfed.coordinator.rounds.fedbuff_settings import FedBuffSettings
from moonfed.coordinator.rounds.settings import Amount, RunSettings
from moonfed.coordinator.rpc.convert_settings import settings_message
from moonfed.v1 import control_pb2


def shown(settings: RunSettings, *rounds: control_pb2.Round) -> list[str]:
    run = control_pb2.Run(run="r", method="fedavg", settings=settings_message(settings))
    return run_lines(run, None, rounds)


def test_the_cohort_and_the_timeouts_of_a_round_are_shown() -> None:
    assert "settings: cohort 100%, minimum devices 1, quorum 50%, deadline 3600 s, heartbeat timeout 120 s" in shown(
        RunSettings(rounds=1)
    )
    chosen = RunSettings(
        rounds=1,
        cohort=Amount(count=4),
        quorum=Amount(count=2),
        minimum_devices=3,
        deadline_seconds=90,
        heartbeat_timeout_seconds=12.5,
        over_selection=0.3,
        labels={"site": "berlin", "camera": "hd"},
        sampling="samples",
    )
    assert (
        "settings: cohort 4, minimum devices 3, quorum 2, deadline 90 s, heartbeat timeout 12.5 s, over-selection 30%, "
        "label camera=hd, site=berlin, sampling samples"
    ) in shown(chosen)
    (line,) = (
        line for line in shown(RunSettings(rounds=1, asynchronous=FedBuffSettings(buffer=5, max_staleness=7)))[1:2]
    )
    assert line.endswith("asynchronous 5, max staleness 7")


def test_an_abandoned_round_shows_why_rather_than_its_whole_cohort() -> None:
    reason = "1 of the 2 updates needed by the deadline; late: cam-3"
    abandoned = control_pb2.Round(
        round=1,
        attempt=1,
        status=control_pb2.ROUND_STATUS_ABANDONED,
        missing=["cam-1", "cam-2", "cam-3"],
        reason=reason,
    )
    committed = control_pb2.Round(
        round=1, attempt=2, status=control_pb2.ROUND_STATUS_COMMITTED, counted=["cam-1", "cam-2"], missing=["cam-3"]
    )
    first, second = shown(RunSettings(rounds=1), abandoned, committed)[-2:]
    assert first == f"1      1        abandoned  0 of 3   0.0      {reason}"
    assert second == "1      2        committed  2 of 3   0.0      cam-3"
