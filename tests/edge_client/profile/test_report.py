"""Profiles as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from moonfed.available_memory import Available
from moonfed.edge_client.profile.measure import Peak, Profile
from moonfed.edge_client.profile.report import print_profile, print_progress, profile_document, profile_lines
from moonfed.edge_client.profile.task import Times
from moonfed.edge_client.resources.memory_estimate import Need
from moonfed.errors import ResourceExhausted
from tests.edge_client.conftest import Bundle

pytestmark = pytest.mark.slow

GB = 1_000_000_000
TIMES = Times(step=0.0125, step_with_references=0.02, references=0.0075, evaluation=0.004)


@pytest.fixture
def found(bundle: Bundle) -> Profile:
    """A device without an accelerator on which the bundle of MOON was measured."""
    return Profile(
        manifest=bundle.manifest,
        platform={"processor": "ARM", "memory": "8000000000", "threads": "4"},
        samples=100,
        batch_size=10,
        epochs=2,
        precision="float32",
        memory_format="contiguous",
        available=Available(host=4 * GB, accelerator=None),
        times=TIMES,
        peak=Peak(host=GB, estimated_host=2 * GB, accelerator=None, estimated_accelerator=None),
    )


def table(found: Profile) -> dict[str, str]:
    rows = [line.split("  ", 1) for line in profile_lines(found)]
    return {name.strip(): value.strip() for name, value in rows}


def test_the_table_names_times_memory_and_the_verdict(found: Profile) -> None:
    assert table(found) == {
        "bundle": "tested: mlp, moon",
        "device": "processor ARM, threads 4",
        "runs in": "float32, contiguous",
        "round": "100 samples in batches of 10, 2 epochs: 20 steps",
        "a step": "12.50 ms",
        "with its references": "20.00 ms",
        "references of a batch": "7.50 ms",
        "evaluation of a batch": "4.00 ms",
        "the round": f"about {found.round_seconds:.1f} s of local training",
        "memory available": "4.0 GB",
        "memory measured": "1.0 GB at most; estimated 2.0 GB",
        "can participate": "yes",
    }
    columns = {line.index(table(found)[line.split("  ")[0]]) for line in profile_lines(found)}
    assert len(columns) == 1, "the values are aligned"


def test_an_accelerator_and_a_limit_have_their_own_words(found: Profile) -> None:
    cuda = replace(
        found,
        available=Available(host=4 * GB, accelerator=16 * GB),
        limit=3 * GB,
        peak=Peak(host=GB, estimated_host=GB, accelerator=5 * GB, estimated_accelerator=6 * GB),
    )
    rows = table(cuda)
    assert rows["memory available"] == "4.0 GB, 16.0 GB on the accelerator; --max-memory 3.0 GB"
    assert rows["on the accelerator"] == "5.0 GB at most; estimated 6.0 GB"
    memory = profile_document(cuda)["memory"]
    assert memory["measured_on_accelerator"] == {"peak": 5 * GB, "estimated": 6 * GB}
    assert (memory["available_on_accelerator"], memory["max_memory"]) == (16 * GB, 3 * GB)


def test_the_need_is_the_sum_over_host_and_accelerator(bundle: Bundle) -> None:
    found = Profile(
        manifest=bundle.manifest,
        platform={"accelerator": "cuda"},
        samples=9,
        batch_size=8,
        epochs=1,
        precision="bfloat16",
        memory_format="channels-last",
        need=Need(host={"samples": 10**6}, accelerator={"model": 2 * 10**6}),
        available=Available(host=3 * 10**9, accelerator=8 * 10**9),
        rejection=ResourceExhausted("too much"),
    )
    text = "\n".join(profile_lines(found))
    assert "about 3 MB (samples 1 MB, model 2 MB)" in text
    assert "3.0 GB, 8.0 GB on the accelerator" in text
    assert profile_document(found)["memory"]["available_on_accelerator"] == 8 * 10**9


def test_a_plan_without_references_has_no_lines_for_them(found: Profile) -> None:
    times = replace(TIMES, references=None, step_with_references=None)
    assert not {"with its references", "references of a batch"} & table(replace(found, times=times)).keys()


@pytest.mark.parametrize(
    ("step", "text"),
    [(0.02, "0.4 s"), (0.6, "12 s"), (10.0, "3.3 min"), (500.0, "2.8 h")],
)
def test_a_rounds_duration_has_a_readable_unit(found: Profile, step: float, text: str) -> None:
    times = Times(step=step, step_with_references=None, references=None, evaluation=0.0)
    assert table(replace(found, times=times))["the round"] == f"about {text} of local training"


def test_a_rejected_device_gets_the_reason_after_the_table(found: Profile, capsys: pytest.CaptureFixture[str]) -> None:
    rejected = replace(found, times=None, peak=None, rejection=ResourceExhausted("the round needs 9 GB"))
    for as_json in (False, True):
        with pytest.raises(ResourceExhausted, match="the round needs 9 GB"):
            print_profile(rejected, as_json=as_json)
        printed = capsys.readouterr().out
        if as_json:
            document = json.loads(printed)
            assert (document["can_participate"], document["reason"]) == (False, "the round needs 9 GB")
            assert (document["seconds"], document["memory"]["measured"], document["memory"]["need"]) == (
                None,
                None,
                None,
            )
        else:
            assert printed.splitlines()[-1].split() == ["can", "participate", "no"]
            assert "a step" not in printed


def test_json_has_seconds_and_the_platform(found: Profile, capsys: pytest.CaptureFixture[str]) -> None:
    print_profile(found, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["seconds"] == {
        "step": 0.0125,
        "step_with_references": 0.02,
        "references": 0.0075,
        "evaluation": 0.004,
        "round": found.round_seconds,
    }
    assert document["platform"] == found.platform
    assert document["bundle"] == {"name": "tested", "model": "mlp", "method": "moon"}
    assert (document["samples"], document["steps"], document["reason"]) == (100, 20, "")


def test_progress_is_apart_from_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    print_progress("measuring steps")
    assert capsys.readouterr() == ("", "measuring steps …\n")
