"""`moonfed-client` in the process of the test: options, output and errors; other tests run the whole commands."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from moonfed.edge_client import cli
from moonfed.edge_client.profile import measure as profiling
from moonfed.edge_client.settings import DeviceSettings
from moonfed.edge_client.state.trust import load, pin
from moonfed.errors import InvalidInput, MoonfedError, NotFound
from moonfed.signing.key_files import write_trust
from moonfed.signing.trust import TrustChain
from tests.support.signatures import TRUST, issued, trust


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [*map(str, arguments)])


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], Mapping[str, str]]]:
    """The command lines and environments of processes that would replace this one."""
    found: list[tuple[list[str], Mapping[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, environment: found.append((command, environment)))
    return found


def test_options_become_the_agents_settings_and_no_argument(
    replaced: list[tuple[list[str], Mapping[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(
        *("run", "--data", "samples.npz", "--state", "here", "--device", "cuda", "--threads", 3, "--holdout", 0.25),
        *("--precision", "bfloat16", "--memory-format", "contiguous", "--max-steps", 50, "--max-seconds", 1.5),
        *("--max-memory", "4GB", "--max-bandwidth", "500KB", "--between", "22:00-06:00", "--sandbox", "weak"),
        *("--proxy", "http://user:secret@proxy:8080", "--label", "site=berlin", "--label", "camera=hd"),
    )
    assert result.exit_code == 0, result.output
    [(command, environment)] = replaced
    assert not any("secret" in word for word in command), "which everyone can read"
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert DeviceSettings.from_environment() == DeviceSettings(
        state=str(tmp_path / "here"),
        data="samples.npz",
        accelerator="cuda",
        threads=3,
        holdout=0.25,
        insecure=False,
        coordinator="",
        name="",
        precision="bfloat16",
        memory_format="contiguous",
        max_steps=50,
        max_seconds=1.5,
        max_memory=4 * 10**9,
        sandbox="weak",
        between="22:00-06:00",
        max_bandwidth=500_000,
        proxy="http://user:secret@proxy:8080",
        labels={"site": "berlin", "camera": "hd"},
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-memory", "much"), "max-memory is 'much'; it must be a size such as 4GB or 512MB"),
        (("--max-bandwidth", "1"), "max-bandwidth is 1 bytes per second; it must be at least 1000"),
        (("--sandbox", "none"), "sandbox is 'none'; it must be 'strict', 'weak' or 'off'"),
        (("--label", "berlin"), "label is 'berlin'; it must be"),
        (("--insecure",), "coordinator is missing"),
    ],
)
def test_a_wrong_option_starts_no_agent(
    options: tuple[str, ...], message: str, replaced: list[tuple[list[str], Mapping[str, str]]]
) -> None:
    result = call("run", "--data", "samples.npz", *options)
    assert isinstance(result.exception, InvalidInput)
    assert str(result.exception).startswith(message)
    assert not replaced


def test_trust_shows_and_replaces_the_trusted_keys(tmp_path: Path) -> None:
    state = tmp_path / "state"
    missing = call("trust", "--state", state)
    assert isinstance(missing.exception, NotFound)
    assert str(missing.exception).endswith(f"give it one with: moonfed-client trust FILE --state {state}")
    pin(state, TRUST)
    assert json.loads(call("trust", "--state", state, "--json").output) == {
        "trust": TRUST.to_document(),
        "accepted": {},
    }
    write_trust(tmp_path / "theirs.json", TrustChain((issued(trust(9), 9),)))
    shown = call("trust", tmp_path / "theirs.json", "--state", state)
    assert (
        shown.output
        == f"{state} trusts bundles signed with {next(iter(trust(9).keys))} (version 1 of the trust file)\n"
    )
    held = load(state)
    assert held
    assert held.trust == trust(9)


def test_profile_passes_its_options_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[profiling.ProfileSettings] = []

    def profile(settings: profiling.ProfileSettings, report: object) -> None:
        found.append(settings)
        raise NotFound("no bundle")

    monkeypatch.setattr(profiling, "profile", profile)
    result = call(
        *("profile", tmp_path, "--samples", 20, "--batch-size", 5, "--epochs", 2, "--max-memory", "1GiB"),
        *("--threads", 1, "--sandbox", "off", "--state", tmp_path / "state"),
    )
    assert isinstance(result.exception, NotFound)
    assert found == [
        profiling.ProfileSettings(
            bundle=tmp_path,
            samples=20,
            batch_size=5,
            epochs=2,
            max_memory=1 << 30,
            threads=1,
            sandbox="off",
            state=tmp_path / "state",
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("predict", "picture.jpg", "--state", "/nowhere/state"), NotFound),
        (("predict", "picture.jpg", "--sandbox", "none"), InvalidInput),
        (("enrol", "no-token", "--proxy", "ftp://proxy"), InvalidInput),
    ],
)
def test_errors_are_moonfeds_own(arguments: tuple[Any, ...], kind: type[MoonfedError]) -> None:
    assert isinstance(call(*arguments).exception, kind)


def test_every_command_has_an_example() -> None:
    for command in cli.app.registered_commands:
        assert f"moonfed-client {command.name}" in (command.callback.__doc__ or "")
