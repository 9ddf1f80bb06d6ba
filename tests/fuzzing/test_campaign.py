"""The fuzzing campaign: it counts its inputs, and finds planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing import campaign
from tests.fuzzing.mutation import mutants
from tests.fuzzing.worker import ATHERIS, MUTATION

PLANTED = "tests.fuzzing.planted_decoders:DECODERS"


@pytest.fixture(params=[ATHERIS, MUTATION])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == ATHERIS:
        pytest.importorskip("atheris")
    return str(request.param)


def test_an_exception_is_found_once_with_its_input(engine: str, tmp_path: Path) -> None:
    outcome = campaign.fuzz("raising", 20_000, 0, tmp_path, engine, PLANTED)
    assert outcome.inputs == 20_000
    assert len(outcome.findings) == 1
    assert outcome.findings[0].startswith("KeyError at planted_decoders.py:")
    (found,) = [path for path in (tmp_path / "raising" / "findings").iterdir() if not path.suffix]
    assert found.read_bytes().startswith(b"seed\xff")


def test_an_input_that_ends_the_process_is_kept_and_fuzzing_continues(engine: str, tmp_path: Path) -> None:
    outcome = campaign.fuzz("dying", 5_000, 0, tmp_path, engine, PLANTED)
    assert outcome.findings
    assert all("died of SIGKILL" in finding for finding in outcome.findings)
    kept = [path for path in (tmp_path / "dying" / "findings").iterdir() if not path.suffix]
    assert kept
    assert all(b"\xff" in path.read_bytes() for path in kept)


def test_mutants_depend_on_the_seed_alone() -> None:
    first, second = (mutants([b"seed", b'{"a": 17}'], 3, 100) for _ in range(2))
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]
