"""Checkpoints: an unfinished simulation resumes elsewhere with the same result."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from moonfed.blobs.compression import zstd
from moonfed.coordinator.storage.db.sqlite import DATABASE_FILE, open_store
from moonfed.errors import InvalidInput, NotFound, UntrustedBundle, VersionMismatch, WrongState
from moonfed.experiments.cli import app
from moonfed.experiments.datasets import SplitDataSet, load_dataset
from moonfed.experiments.fleet import preparation
from moonfed.experiments.fleet.checkpoint import restore_checkpoint, save_checkpoint
from moonfed.experiments.fleet.engine import EngineSettings
from moonfed.experiments.fleet.layout import RUN
from moonfed.experiments.fleet.run import SimulationProgress, run_simulation
from moonfed.experiments.simulation import Simulation
from moonfed.signing.trust import TrustChain
from tests.support.refusals import refused
from tests.support.signatures import issued, trust, write_keys
from tests.support.simulations import make_simulation

pytestmark = pytest.mark.slow

TWO = EngineSettings(workers=2)
KEYS: dict[str, Any] = {"dataset": "wine", "model": "mlp", "parties": 3, "rounds": 4, "beta": 5.0, "seed": 1}
LOCAL = {"epochs": 1, "batch_size": 8}
MOON = make_simulation(**KEYS, method="moon", settings=LOCAL)


class Interrupted(Exception):
    """Raised to end a simulation in the middle."""


def interrupt(simulation: Simulation, output: Path, at: str, live: Path) -> int:
    """Run until the progress says `at`, save a checkpoint while it runs, and break off; return the saved rounds."""
    rounds = []

    def stop(progress: SimulationProgress) -> None:
        if progress.sentence.startswith(at):
            before = committed_rounds(output)
            saved = save_checkpoint(output, live).rounds
            assert before <= saved <= committed_rounds(output)
            rounds.append(saved)
            raise Interrupted

    with pytest.raises(Interrupted):
        run_simulation(simulation, output, engine=TWO, progress=stop)
    return rounds[0]


def committed_rounds(output: Path) -> int:
    """Count the rounds in a simulation's database, which its coordinator may be writing; without one there are none."""
    if not (output / "coordinator").is_dir():
        return 0
    with closing(sqlite3.connect(output / "coordinator" / DATABASE_FILE)) as database:
        found = database.execute("SELECT count(*) FROM rounds WHERE status = 'committed'").fetchone()
    return int(found[0])


def set_scored(output: Path, newest: int) -> None:
    """Make the rounds up to `newest` the scored ones of a stopped simulation."""
    with closing(sqlite3.connect(output / "coordinator" / DATABASE_FILE)) as database, database:
        database.execute("DELETE FROM metrics WHERE name = 'accuracy'")
    with closing(open_store(output / "coordinator" / DATABASE_FILE)) as store:
        for round_ in range(1, newest + 1):
            store.put_metrics(RUN, round_, {"accuracy": 0.5})


def measured(output: Path) -> list[dict[str, Any]]:
    """Return the results but for what repeated work costs."""
    rows = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
    costs = ("seconds", "party_seconds", "sent_bytes", "received_bytes")
    return [{key: value for key, value in row.items() if key not in costs} for row in rows]


@pytest.mark.parametrize(
    ("keys", "at"),
    [
        ({"method": "moon", "settings": LOCAL}, "round 3 of 4: 2 of 3"),
        ({"method": "moon", "settings": LOCAL}, "round 1 of 4: 1 of 3"),
        ({"method": "scaffold", "settings": LOCAL}, "round 3 of 4: 1 of 3"),
        ({"method": "fedssc", "settings": LOCAL, "server_rule": "fedavgm"}, "round 4 of 4: 1 of 3"),
        ({"method": "fedavg", "settings": LOCAL, "cohort": "2", "uplink_encoding": "int8"}, "round 3 of 4: 1 of 2"),
    ],
)
def test_a_restored_simulation_ends_to_the_bit_like_an_undisturbed_one(
    tmp_path: Path, keys: dict[str, Any], at: str
) -> None:
    simulation = make_simulation(**KEYS, **keys)
    whole = run_simulation(simulation, tmp_path / "whole", engine=TWO)
    saved = interrupt(simulation, tmp_path / "broken", at, tmp_path / "live.tar.zst")
    save_checkpoint(tmp_path / "broken", tmp_path / "stopped.tar.zst")
    shutil.rmtree(tmp_path / "broken")
    for name in ("live", "stopped")[: 2 if simulation.method == "moon" else 1]:
        checkpoint = tmp_path / f"{name}.tar.zst"
        result = run_simulation(simulation, tmp_path / name, checkpoint=checkpoint, engine=TWO)
        assert whole.model is not None
        assert result.model is not None
        assert result.model.read_bytes() == whole.model.read_bytes()
        assert measured(tmp_path / name) == measured(tmp_path / "whole")
    restored = json.loads((tmp_path / "live" / "checkpoint.json").read_text())
    assert restored["rounds"] == saved


def test_parties_that_have_trained_alone_are_not_trained_again(tmp_path: Path) -> None:
    simulation = make_simulation(**KEYS, method="solo", settings=LOCAL)
    whole = run_simulation(simulation, tmp_path / "whole", engine=TWO)
    interrupt(simulation, tmp_path / "broken", "round 1 of 1: 2 of 3", tmp_path / "live.tar.zst")
    result = run_simulation(simulation, tmp_path / "again", checkpoint=tmp_path / "live.tar.zst", engine=TWO)
    assert measured(tmp_path / "again") == measured(tmp_path / "whole")
    before = {entry.party: entry.seconds for entry in result.parties}
    restore_checkpoint(tmp_path / "live.tar.zst", simulation, tmp_path / "saved")
    kept = [json.loads(line) for line in (tmp_path / "saved" / "results.jsonl").read_text().splitlines()]
    assert len(kept) >= 1
    assert all(before[row["party"]] == row["seconds"] for row in kept)
    assert result.score == whole.score


def test_a_checkpoint_omits_files_that_can_be_recreated(tmp_path: Path) -> None:
    interrupt(MOON, tmp_path / "a", "round 4 of 4: 1 of 3", tmp_path / "live.tar.zst")
    rounds = committed_rounds(tmp_path / "a")  # the fourth one may have been committed as the simulation was ended
    set_scored(tmp_path / "a", rounds)
    command = ["checkpoint", str(tmp_path / "a"), "--output", str(tmp_path / "saved"), "--json"]
    message = json.loads(CliRunner().invoke(app, command, catch_exceptions=False).stdout)
    assert message == {"file": str(tmp_path / "saved"), "rounds": rounds, "bytes": (tmp_path / "saved").stat().st_size}
    restore_checkpoint(tmp_path / "saved", MOON, tmp_path / "b")
    assert not (tmp_path / "b" / "data").exists()
    models = {path.parent.name for path in (tmp_path / "b").glob("parties/*/runs/*/*/model.safetensors")}
    assert models <= {f"{rounds - 1}-1", f"{rounds}-1"}
    assert len(models_of(tmp_path / "b")) == 2  # the initial and the newest


def models_of(output: Path) -> list[Path]:
    """Return the models among a simulation's blobs."""
    size = (output / "bundle" / "initial.safetensors").stat().st_size
    return [path for path in (output / "coordinator" / "blobs").glob("??/*") if path.stat().st_size == size]


@pytest.mark.parametrize("unscored", [3, 2, 1])
def test_a_checkpoint_keeps_models_that_are_not_scored_yet(tmp_path: Path, unscored: int) -> None:
    interrupt(MOON, tmp_path / "a", "round 4 of 4: 1 of 3", tmp_path / "live.tar.zst")
    set_scored(tmp_path / "a", committed_rounds(tmp_path / "a") - unscored)
    save_checkpoint(tmp_path / "a", tmp_path / "saved")
    restore_checkpoint(tmp_path / "saved", MOON, tmp_path / "b")
    assert len(models_of(tmp_path / "b")) == 1 + unscored  # with the initial one
    assert (tmp_path / "b" / "coordinator").stat().st_mode & 0o077 == 0, "as the coordinator makes it"


def test_a_checkpoint_with_the_bundle_of_a_stranger_needs_their_trust_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    write_keys(theirs, 9, chain=TrustChain((issued(trust(9), 9),)))
    with monkeypatch.context() as patch:
        patch.setenv("MOONFED_KEYS", str(theirs))
        interrupt(MOON, tmp_path / "a", "round 2 of 4: 1 of 3", tmp_path / "saved")
    for name, change in (("b", lambda _: None), ("c", lambda bundle: (bundle / "signature.json").unlink())):
        restore_checkpoint(tmp_path / "saved", MOON, tmp_path / name)
        change(tmp_path / name / "bundle")
    (tmp_path / "d").mkdir()
    with pytest.raises(UntrustedBundle, match="bundle: version 1 in"):
        run_simulation(MOON, tmp_path / "b", engine=TWO)
    with pytest.raises(UntrustedBundle, match="bundle: the bundle is not"):
        run_simulation(MOON, tmp_path / "c", engine=TWO, trust=theirs / "trust.json")
    differs = "trusted here"
    advice = rf"{differs}.*; name its engineer's trust file with --trust, or sign it: .* sign .*/d/bundle"
    with pytest.raises(UntrustedBundle, match=advice):
        run_simulation(MOON, tmp_path / "d", checkpoint=tmp_path / "saved", engine=TWO)
    result = run_simulation(MOON, tmp_path / "b", engine=TWO, trust=theirs / "trust.json")
    assert len(result.rounds) == 4


def test_an_output_that_holds_the_simulation_resumes_on_its_own(tmp_path: Path) -> None:
    interrupt(MOON, tmp_path / "a", "round 2 of 4: 1 of 3", tmp_path / "live.tar.zst")
    (tmp_path / "live.tar.zst").write_text("not needed")
    assert len(run_simulation(MOON, tmp_path / "a", checkpoint=tmp_path / "live.tar.zst", engine=TWO).rounds) == 4


def test_a_simulation_that_cannot_be_saved_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no simulation"):
        save_checkpoint(tmp_path, tmp_path / "x")
    run_simulation(make_simulation(**(KEYS | {"rounds": 1}), settings=LOCAL), tmp_path / "a", engine=TWO)
    with refused(WrongState, "finished simulation"):
        save_checkpoint(tmp_path / "a", tmp_path / "x")
    (tmp_path / "a" / "summary.json").unlink()
    shutil.rmtree(tmp_path / "a" / "coordinator")
    with pytest.raises(WrongState, match="has not begun to train"):
        save_checkpoint(tmp_path / "a", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of `MOON`."""
    interrupt(MOON, tmp_path / "made", "round 2 of 4: 1 of 3", tmp_path / "saved.tar.zst")
    return tmp_path / "saved.tar.zst"


def test_a_checkpoint_of_something_else_is_rejected(tmp_path: Path, saved: Path) -> None:
    other = make_simulation(**(KEYS | {"seed": 2}), method="moon", settings=LOCAL)
    with refused(InvalidInput, "seed", "1"):
        restore_checkpoint(saved, other, tmp_path / "b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    with refused(InvalidInput, "output"):
        restore_checkpoint(saved, MOON, tmp_path / "full")
    with refused(NotFound, "checkpoint"):
        restore_checkpoint(tmp_path / "x", MOON, tmp_path / "b")
    for content in (b"", b"not a checkpoint", saved.read_bytes()[:-2000]):
        (tmp_path / "bad").write_bytes(content)
        with refused(InvalidInput, "checkpoint"):
            restore_checkpoint(tmp_path / "bad", MOON, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_other_samples_than_the_checkpoints_are_rejected(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(name: str, root: Path | None) -> SplitDataSet:
        data = load_dataset(name, root)
        data.train.inputs[0] = np.pi
        return data

    monkeypatch.setattr(preparation, "load_dataset", damaged)
    for _ in range(2):
        with refused(InvalidInput, "data"):
            run_simulation(MOON, tmp_path / "b", checkpoint=saved, engine=TWO)


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_nothing_is_unpacked_outside_the_directory(tmp_path: Path, name: str) -> None:
    member = tarfile.TarInfo(str(tmp_path) + name if name.startswith("/") else name)
    member.size = 1
    _write(tmp_path / "evil", member, b"x")
    with refused(InvalidInput, "checkpoint"):
        restore_checkpoint(tmp_path / "evil", MOON, tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["evil"]


def test_a_link_in_a_checkpoint_is_rejected(tmp_path: Path) -> None:
    member = tarfile.TarInfo("simulation.json")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/hostname"
    _write(tmp_path / "evil", member, b"")
    with refused(InvalidInput, "checkpoint"):
        restore_checkpoint(tmp_path / "evil", MOON, tmp_path / "b")


def _write(path: Path, member: tarfile.TarInfo, content: bytes) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(member, io.BytesIO(content))
    path.write_bytes(zstd.compress(packed.getvalue()))


@pytest.mark.parametrize(
    ("found", "kind"), [("moonfed-checkpoint/2", VersionMismatch), (1, InvalidInput), (None, InvalidInput)]
)
def test_a_checkpoint_of_another_version_creates_nothing(
    tmp_path: Path, found: object, kind: type[InvalidInput | VersionMismatch]
) -> None:
    facts = json.dumps({"format": found, "rounds": 1, "later": 1}).encode()
    member = tarfile.TarInfo("checkpoint.json")
    member.size, archive = len(facts), io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as opened:
        opened.addfile(member, io.BytesIO(facts))
    (tmp_path / "file").write_bytes(zstd.compress(archive.getvalue()))
    with refused(kind, "format", found):
        restore_checkpoint(tmp_path / "file", MOON, tmp_path / "output")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
