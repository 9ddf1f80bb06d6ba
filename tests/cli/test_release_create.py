"""The command `release create`, against a coordinator with a run that has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from typer.testing import CliRunner

from moonfed.bundle.files import Bundle
from moonfed.cli.program import app
from moonfed.cli.release_create import _print
from moonfed.client import Release
from moonfed.errors import InvalidInput, MoonfedError, NotFound, UntrustedRelease, WrongState
from moonfed.export.coordinator_client import CoordinatorClient, connect
from moonfed.formatting import moment
from moonfed.models.release_manifest import ReleaseManifest, verify_manifest
from moonfed.release.create import CreatedRelease
from moonfed.transport.operator_connection import Endpoint
from moonfed.v1 import control_pb2, control_pb2_grpc
from tests.support.coordinator import ask, coordinator_in_process, settings, start_run
from tests.support.operator_records import BLOB
from tests.support.signatures import TRUST, signed

DAY = 24 * 3600


@pytest.fixture(scope="module")
def address(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A coordinator with a run `ended`, and one that is active."""
    with coordinator_in_process(tmp_path_factory.mktemp("releases") / "state", insecure=True) as ports:
        found = f"127.0.0.1:{ports.fleet}"
        with grpc.insecure_channel(found) as channel:
            control = control_pb2_grpc.ControlStub(channel)
            for run in ("ended", "active"):
                start_run(control, run, signed(bundle), settings(minimum_devices=9))
            ask(control.StopRun, control_pb2.StopRunRequest(run="ended"))
        yield found


@pytest.fixture
def client(address: str) -> Iterator[CoordinatorClient]:
    with connect(Endpoint(address, None)) as found:
        yield found


def create(address: str, data: Path, *words: str, run: str = "ended") -> str:
    """Run the command; return its standard output, or raise its error."""
    arguments = ["release", "create", run, "--data", str(data), "--insecure", "--coordinator", address, *words]
    return CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False).stdout


def manifest_of(client: CoordinatorClient, release: Release, now: float) -> ReleaseManifest:
    content, signature = (client.fetch(blob).read_bytes() for blob in (release.manifest, release.signature))
    return verify_manifest(content, signature, now=now, trust=TRUST)[0]


def test_each_call_makes_the_next_version_and_describes_it(
    address: str, client: CoordinatorClient, data_file: Path
) -> None:
    for version in (1, 2):
        document: dict[str, Any] = json.loads(create(address, data_file, "--name", "json", "--json", "--round", "0"))
        release = client.releases("json")[-1]
        manifest = manifest_of(client, release, time.time())
        assert document.pop("created").endswith("Z")
        assert document == {
            "name": "json",
            "version": version,
            "run": "ended",
            "round": 0,
            "manifest": release.manifest.sha256,
            "variants": ["float32"],
            "dropped": {},
            "accuracy": release.score,
            "samples": 50,
        }
        assert (manifest.name, manifest.version, manifest.classes) == ("json", version, ("a", "b", "c"))


def test_the_text_ends_with_the_command_that_deploys_the_version(address: str, data_file: Path) -> None:
    created, variants, deploy = create(address, data_file, "--name", "text").splitlines()
    assert created.startswith("created version 1 of text from round 0 of run ended; accuracy 0.")
    assert created.endswith(" on 50 samples")
    assert variants == "variants: float32"
    assert deploy == "deploy it with: moonfed-coordinator release deploy text --version 1"


def test_the_options_of_variants_and_expiry_are_used(address: str, client: CoordinatorClient, data_file: Path) -> None:
    gate = ("--variant", "float16", "--max-drop", "100", "--keep", "smaller")
    create(address, data_file, "--name", "options", *gate, "--expires-days", "2")
    (release,) = client.releases("options")
    assert list(release.variants) == ["float16", "float32"]
    assert manifest_of(client, release, time.time() + DAY).version == 1
    with pytest.raises(UntrustedRelease, match="expired"):
        manifest_of(client, release, time.time() + 3 * DAY)


def test_dropped_variants_are_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    release = Release(
        name="digits",
        version=3,
        created=moment(1e9),
        run="r",
        round=1,
        score=0.5,
        variants={"float32": BLOB},
        manifest=BLOB,
        signature=BLOB,
    )
    _print(CreatedRelease(release=release, dropped={"int8": "it is slower"}), as_json=False)
    assert "dropped int8: it is slower" in capsys.readouterr().out.splitlines()
    _print(CreatedRelease(release=release, dropped={"int8": "it is slower"}), as_json=True)
    assert json.loads(capsys.readouterr().out)["dropped"] == {"int8": "it is slower"}


def test_mistakes_create_nothing(address: str, client: CoordinatorClient, data_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "unlabelled.npz", inputs=np.zeros((5, 30), np.float32))
    named = ("--name", "wrong")
    cases: list[tuple[Path, tuple[str, ...], str, type[MoonfedError], str]] = [
        (data_file, named, "active", WrongState, "run 'active' is running"),
        (data_file, named, "other", NotFound, "there is no run 'other'"),
        (data_file, (*named, "--round", "7"), "ended", NotFound, "model of round 7"),
        (data_file, ("--name", "../x"), "ended", InvalidInput, r"name is '\.\./x'"),
        (data_file, (*named, "--variant", "int4"), "ended", InvalidInput, "variant is 'int4'"),
        (data_file, (*named, "--variant", "int8"), "ended", InvalidInput, "int8 needs data"),
        (data_file, (*named, "--keep", "all"), "ended", InvalidInput, "keep is 'all'"),
        (data_file, (*named, "--expires-days", "0"), "ended", InvalidInput, "expires-days is 0"),
        (tmp_path / "unlabelled.npz", named, "ended", InvalidInput, "has no field 'labels'"),
    ]
    for data, words, run, error, message in cases:
        with pytest.raises(error, match=message):
            create(address, data, *words, run=run)
    with pytest.raises(NotFound, match="there is no release 'wrong'"):
        client.releases("wrong")
