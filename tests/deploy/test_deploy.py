"""Static checks of the images, the units and their documentation."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from moonfed.edge_client.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY, DOCUMENT = ROOT / "deploy", ROOT / "docs" / "devices.md"
IMAGES = ("cpu", "cuda", "jetson")
LOCKED = {  # the files of requirements/ that each image installs
    "cpu": {"build", "device", "tables", "torch", "torch-dependencies"},
    "cuda": {"build", "device", "tables", "torch"},
    "coordinator": {"build", "coordinator"},
    "server": {"build", "server"},
}
PROGRAM = "moonfed-client"

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - development needs 3.11
    pytest.skip("tomllib needs Python 3.11", allow_module_level=True)


def instructions(image: str) -> list[tuple[str, str]]:
    """Return a Dockerfile's (instruction, rest) pairs, with continued lines joined."""
    lines = [line for line in (DEPLOY / f"{image}.Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, " ".join(rest.split())) for name, _, rest in pairs]


def values(image: str, name: str) -> list[str]:
    return [rest for instruction, rest in instructions(image) if instruction == name]


def pip_words(image: str) -> list[str]:
    """Return the words of all pip commands, with build arguments at their defaults."""
    runs = " && ".join(values(image, "RUN"))
    for argument in values(image, "ARG"):
        name, _, default = argument.partition("=")
        runs = runs.replace(f'"${name}"', default)
    return [word for command in re.split(r"&&", runs) if "pip install" in command for word in shlex.split(command)]


def project() -> dict[str, list[str]]:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"device": described["dependencies"], "images": described["optional-dependencies"]["images"]}


def test_the_jetson_image_has_the_dependencies_of_a_device_and_no_others() -> None:
    asked = {word for word in pip_words("jetson") if re.match(r"[a-z.]+[>=<]", word)}
    wanted = {*project()["device"], *project()["images"]}
    assert asked == {requirement for requirement in wanted if not requirement.startswith("torch")}


@pytest.mark.parametrize("image", LOCKED)
def test_an_image_installs_its_locked_requirements_and_nothing_else(image: str) -> None:
    """Requirements have hashes, which pip verifies; test_requirements.py compares them with pyproject.toml."""
    commands = [command for run in values(image, "RUN") for command in re.split(r"&&|;|then|else", run)]
    installs = [shlex.split(command.partition("pip install ")[2]) for command in commands if "pip install" in command]
    files = {word for words in installs for word in words if word.endswith(".txt")}
    assert {Path(file).stem for file in files} == LOCKED[image]
    for words in installs:
        others = [word for word in words if not word.startswith("-") and word not in files]
        if others == ["$TORCH"]:  # a build of torch that the operator names
            continue
        assert "--require-hashes" in words if not others else others == ["/tmp/moonfed"], words
        assert others or words.count("--requirement") == len([word for word in words if word in files])
    assert any({"/tmp/moonfed", "--no-deps", "--no-build-isolation"} <= set(words) for words in installs)


@pytest.mark.parametrize("image", LOCKED)
def test_a_base_can_be_named_by_its_digest(image: str) -> None:
    assert instructions(image)[:2] == [("ARG", "BASE=python:3.11-slim"), ("FROM", "${BASE}")]


def test_the_compose_file_runs_the_coordinators_image_with_valid_options() -> None:
    from moonfed.coordinator.cli.program import app as coordinator_app

    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = compose["services"]["coordinator"]
    assert service["build"]["dockerfile"] == "deploy/coordinator.Dockerfile"
    assert values("coordinator", "ENTRYPOINT") == ['["moonfed-coordinator"]']
    written = values("coordinator", "CMD")[0].strip("[]").split()
    for words in (service["command"], [word.strip('",') for word in written]):
        command: Any = typer.main.get_command(coordinator_app).commands[words[0]]  # type: ignore[attr-defined]
        with command.make_context(words[0], list(words[1:])) as context:
            assert not context.args
    settings = {name for name in service["environment"] if name.startswith("MOONFED_")}
    assert settings == {"MOONFED_DATABASE", "MOONFED_BLOBS"}
    assert {
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }.items() <= service.items()
    text = (DEPLOY / "compose.yaml").read_text()
    required = set(re.findall(r"\$\{(\w+):\?", text))
    assert required == set(re.findall(r"^(\w+)=$", (DEPLOY / "compose.env").read_text(), re.MULTILINE))


def test_the_secrets_of_the_compose_file_are_files_that_no_variable_contains() -> None:
    """`docker inspect`, a crash report and every child process show a container's variables."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    given = {key: value for each in compose["services"].values() for key, value in each.get("environment", {}).items()}
    secret = re.compile("PASSWORD|SECRET|CREDENTIALS|KEY")
    assert {key for key in given if secret.search(key)} == {
        "PGPASSWORD_FILE", "POSTGRES_PASSWORD_FILE", "AWS_SHARED_CREDENTIALS_FILE"
    }  # fmt: skip
    for service in compose["services"].values():
        files = re.findall(r"/run/secrets/([\w-]+)", str(service))
        assert set(files) == set(service["secrets"]) <= compose["secrets"].keys()
    assert all(each["file"].startswith("${SECRETS:?") for each in compose["secrets"].values())
    assert not re.search("PASSWORD|SECRET_|KEY", (DEPLOY / "compose.env").read_text())


def test_the_object_store_reads_its_keys_from_the_credentials_of_the_coordinator(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    shell, option, script = compose["services"]["objects"]["entrypoint"]
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = moonfed\naws_secret_access_key = ab12\n")
    script = script.replace("$$", "$").replace("/run/secrets/objects-credentials", str(tmp_path / "credentials"))
    script = script.replace("/data/moonfed", str(tmp_path / "data")).replace("versitygw", "env")
    script = script.split(" --port")[0]
    done = subprocess.run([shell, option, script], capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    assert {"ROOT_ACCESS_KEY=moonfed", "ROOT_SECRET_KEY=ab12"} <= set(done.stdout.splitlines())


def test_the_servers_image_asks_every_client_for_a_key() -> None:
    from moonfed.cli.program import app as export_app

    assert values("server", "ENTRYPOINT") == ['["moonfed-export", "serve"]']
    command: Any = typer.main.get_command(export_app).commands["serve"]  # type: ignore[attr-defined]
    with command.make_context("serve", json.loads(values("server", "CMD")[0])) as context:
        assert (context.params["host"], context.params["api_key_file"]) == ("0.0.0.0", Path("/keys/api-keys"))


@pytest.mark.parametrize("image", IMAGES)
def test_moonfed_is_installed_without_dependencies(image: str) -> None:
    commands = [command for run in values(image, "RUN") for command in run.split("&&") if "/tmp/moonfed" in command]
    assert any("pip install" in command and "--no-deps" in command for command in commands)


def test_the_jetson_image_verifies_that_torch_was_not_replaced() -> None:
    runs = values("jetson", "RUN")
    message = "print(torch.__file__, torch.__version__, torch.version.cuda)"
    before, after = (next(i for i, run in enumerate(runs) if mark in run) for mark in ("> /tmp/torch", "diff /tmp/to"))
    installs = [number for number, run in enumerate(runs) if "pip install" in run]
    assert before < min(installs)
    assert after == max(installs)
    assert message in runs[before]
    assert message in runs[after].split("--no-deps")[1]
    assert values("jetson", "ARG") == ["BASE"]  # no default: which base is right depends on the board


@pytest.mark.parametrize("image", [*IMAGES, "coordinator", "server"])
def test_an_image_does_not_run_as_root_or_contain_developer_files(image: str) -> None:
    assert values(image, "USER") == ["moonfed"]
    ignored = (DEPLOY / f"{image}.Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in ignored
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    parts = {directory.partition("/")[0] for directory in settings["package-dir"].values()}
    included = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert included - {"requirements"} == parts | {"LICENSE", "pyproject.toml"}
    assert ("requirements" in included) == (image in LOCKED)
    assert all((ROOT / name).exists() for name in included)


def test_an_installation_has_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = set()
    for directory in settings["package-dir"].values():
        root = (ROOT / directory).parents[len(Path(directory).parts) - 2]  # the part's import root
        found |= {".".join(file.parent.relative_to(root).parts) for file in (ROOT / directory).rglob("*.py")}
    assert found == set(settings["packages"])  # an editable installation would work without


def test_deployment_files_name_no_machine_or_registry() -> None:
    for file in (*filter(Path.is_file, DEPLOY.rglob("*")), DOCUMENT):
        text = file.read_text()
        assert not re.search(r"https?://(?!proxy\.example\.org|HOST|objects:|localhost:)", text), file
        assert str(ROOT) not in text, file
        assert str(Path.home()) not in text, file


def test_the_unit_is_valid_for_systemd(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    text = (DEPLOY / "moonfed-client.service").read_text()
    unit = tmp_path / "moonfed-client.service"
    # It looks whether programs and users are there; those of a device are not here.
    unit.write_text(text.replace("/opt/moonfed/bin/moonfed-client", sys.executable))
    done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "moonfed-client.service" not in done.stderr  # warnings, such as of an unknown name, name the file


def test_the_unit_permits_what_the_sandbox_of_plans_needs() -> None:
    """The group @system-service lacks these calls, and a call outside the filter would end the process."""
    unit = (DEPLOY / "moonfed-client.service").read_text()
    permitted = {word for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE) for word in line.split()}
    assert permitted >= {"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp"}
    assert "SystemCallErrorNumber=EPERM" in unit, "where systemd does not know them, the client explains itself"


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """Return (location, arguments) of every moonfed-client command line."""
    for image in IMAGES:
        assert values(image, "ENTRYPOINT") == [f'["{PROGRAM}"]']
        yield image, [word.strip('",') for word in values(image, "CMD")[0].strip("[]").split()]
    options = re.search(r"^echo 'MOONFED_OPTIONS=(.*)' >", DOCUMENT.read_text(), re.MULTILINE)
    assert options
    service = (DEPLOY / "moonfed-client.service").read_text()
    started = re.search(rf"^ExecStart=\S*{PROGRAM} (.*)$", service, re.MULTILINE)
    assert started
    yield "service", shlex.split(started[1].replace("$MOONFED_OPTIONS", options[1]))
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)).replace("\\\n", " ")
    for line in blocks.splitlines():
        words = shlex.split(line, comments=True)
        for start in [i for i, w in enumerate(words) if w.endswith(f"/{PROGRAM}") or w.startswith(f"{PROGRAM}:")] + [
            i for i, w in enumerate(words[:1]) if w == PROGRAM
        ]:
            if words[start + 1 :] and "build" not in words[:2]:
                yield "docs/devices.md", words[start + 1 :]


def test_every_documented_command_line_is_valid() -> None:
    commands: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    found = list(command_lines())
    assert {arguments[0] for _, arguments in found} == {"check", "doctor", "enrol", "predict", "profile", "run"}
    assert len(found) == len(IMAGES) + 1 + 9  # the images, the service, and nine in the documentation
    for where, arguments in found:
        command = commands[arguments[0]]
        with command.make_context(arguments[0], arguments[1:]) as context:  # raises what it cannot parse
            assert not context.args, where


def test_systemd_does_not_restart_after_errors_that_a_restart_cannot_fix() -> None:
    from moonfed import errors
    from moonfed.command_line.exit_codes import exit_code

    service = (DEPLOY / "moonfed-client.service").read_text()
    kept = re.search(r"^RestartPreventExitStatus=(.*)$", service, re.MULTILINE)
    assert kept
    final = (errors.InvalidInput, errors.NotFound, errors.Denied, errors.Untrusted, errors.VersionMismatch)
    assert {int(code) for code in kept[1].split()} == {exit_code(kind("")) for kind in final}
