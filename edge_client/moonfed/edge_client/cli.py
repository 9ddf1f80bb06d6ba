"""The command line of `moonfed-client`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from moonfed.command_line import new_app, print_json, run_program
from moonfed.edge_client.settings import DeviceSettings
from moonfed.labels import parse_labels
from moonfed.proxy import ignore_proxy_exceptions, parse_proxy
from moonfed.sandbox.policy import parse_level
from moonfed.sizes import parse_size

NAME = "moonfed-client"
HELP = """Run this machine as a device of a moonfed federation. Training data never leave it.

\b
Enrol once with the join token from the coordinator's operator, then run:
  moonfed-client enrol moonfed-join-1.eyJ… --name camera-7
  moonfed-client run --data pictures/
  moonfed-client predict picture.jpg       # once a run has finished
"""
STATE = typer.Option(Path("moonfed-device"), "--state", help="Directory for the device's identity, plans and models.")
TRUST = typer.Option(None, "--trust", metavar="FILE", help="The engineer's trust file. Default: see above.")
PROXY = typer.Option(
    "",
    metavar="http://HOST:PORT",
    help="An HTTP proxy (CONNECT) to the coordinator. Default: the environment's, if any.",
)

SANDBOX = typer.Option(
    "strict",
    metavar="strict|weak|off",
    help="Isolation of plans; `doctor` reports the levels that this machine can enforce.",
)
# Start the agent without the working directory on its path, where others may be able to write files.
AGENT = "import sys; sys.path[:] = filter(None, sys.path); from moonfed.edge_client.agent.main import main; main()"

app = new_app(HELP)


@app.command("enrol")
def enrol_command(
    token: str = typer.Argument(..., metavar="TOKEN_OR_FILE", help="A join token, or a file that contains one."),
    name: str = typer.Option("", help="The device's name in the fleet. Default: the host's."),
    coordinator: str = typer.Option("", metavar="HOST:PORT", help="Overrides the join token's address."),
    proxy: str = PROXY,
    trust: Path = TRUST,
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Enrol this device with a join token, or re-enrol it when its certificate has expired.

    \b
    Examples:
      moonfed-client enrol moonfed-join-1.eyJ… --name camera-7
      moonfed-client enrol token.txt --state /var/lib/moonfed --trust engineer.json
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    from moonfed.edge_client.agent.enrolment import enrol, read_token

    if proxy:
        parse_proxy(proxy)
        os.environ.update(ignore_proxy_exceptions())
    identity = enrol(read_token(token), name, state, coordinator or None, proxy, trust)
    if json:
        print_json(
            {
                "device": identity.name,
                "coordinator": identity.address,
                "expires": identity.expires.isoformat(),
                "state": str(state),
            }
        )
    else:
        print(f"{identity.name} is enrolled at {identity.address}; start it with: {NAME} run --state {state} --data …")


@app.command("trust")
def trust_command(
    file: Path = typer.Argument(
        None, metavar="TRUST.json", help="An engineer's trust file. Default: print the current one."
    ),
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Show the keys whose bundles this device runs, or replace them, for example after the loss of all keys.

    The device also forgets which versions of bundles it has accepted. Start it again for the runs that it rejected.

    \b
    Examples:
      moonfed-client trust
      moonfed-client trust engineer.json --state /var/lib/moonfed
    """  # noqa: D301
    from moonfed.edge_client.state.trust import describe, load, replace_trust
    from moonfed.errors import NotFound

    if file is not None:
        replace_trust(state, file)
    held = load(state)
    if held is None:
        raise NotFound(f"{state} has no trust file; give it one with: {NAME} trust FILE --state {state}")
    if json:
        print_json({"trust": held.trust.to_document(), "accepted": dict(held.accepted)})
    else:
        print(f"{state} trusts {describe(held.trust)} (version {held.trust.version} of the trust file)")


@app.command("run")
def run_command(
    data: str = typer.Option(..., metavar="FOLDER|FILE.npz|module:callable", help="This device's samples; see above."),
    state: Path = STATE,
    device: str = typer.Option("cpu", metavar="cpu|cuda", help="The accelerator."),
    threads: int = typer.Option(None, help="CPU threads for training. Default: torch's choice."),
    precision: str = typer.Option(
        "float32", metavar="float32|bfloat16|float16", help="Lower precision is faster on hardware that supports it."
    ),
    memory_format: str = typer.Option(
        None,
        metavar="contiguous|channels-last",
        help="Memory layout of convolutions. Default: the fastest on most hardware.",
    ),
    max_steps: int = typer.Option(
        None, "--max-steps", metavar="N", help="Maximum optimiser steps per round. Default: all."
    ),
    max_seconds: float = typer.Option(
        None, metavar="S", help="Maximum seconds of local training per round; partial work is submitted."
    ),
    max_memory: str = typer.Option(
        None, metavar="SIZE", help="Memory limit for local training, such as 4GB; rounds that need more are declined."
    ),
    between: str = typer.Option(
        "", metavar="HH:MM-HH:MM", help="Connect and train only in this window of local time. Default: always."
    ),
    max_bandwidth: str = typer.Option(
        None, metavar="SIZE", help="Bytes per second in each direction, such as 500KB. Default: unlimited."
    ),
    label: list[str] = typer.Option(
        None, metavar="NAME=VALUE", help="A label by which runs select devices; repeatable."
    ),
    sandbox: str = SANDBOX,
    proxy: str = PROXY,
    holdout: float = typer.Option(0.0, help="Fraction of the samples held out to evaluate each round's initial model."),
    insecure: bool = typer.Option(
        False, "--insecure", help="Connect without TLS; only to a coordinator on this machine."
    ),
    coordinator: str = typer.Option("", metavar="HOST:PORT", help="Overrides the enrolled address."),
    name: str = typer.Option("", help="The device's name; only with --insecure. Default: the host's."),
) -> None:
    """Connect to the coordinator, train and submit updates until stopped.

    \b
    Data:
      pictures/            one folder of images per class, named like the bundle's classes
      samples.npz          inputs (uint8 [N, height, width, channels] or float32 [N, width]) and labels [N]
      my_module:load       load(input_spec, class_names) returns (inputs, labels); called for each round

    \b
    Examples:
      moonfed-client run --data pictures/ --device cuda --holdout 0.1
      moonfed-client run --data samples.npz --state /var/lib/moonfed
      moonfed-client run --data samples.npz --max-steps 50 --max-memory 4GB
      moonfed-client run --data samples.npz --between 22:00-06:00 --max-bandwidth 500KB
      moonfed-client run --data samples.npz --label site=berlin --label camera=hd
      moonfed-client run --data samples.npz --insecure --coordinator localhost:7443 --name one
    """  # noqa: D301
    settings = DeviceSettings(
        state=str(state.resolve()),
        data=data,
        accelerator=device,
        threads=threads,
        holdout=holdout,
        insecure=insecure,
        coordinator=coordinator,
        name=name,
        precision=precision,
        memory_format=memory_format,
        max_steps=max_steps,
        max_seconds=max_seconds,
        max_memory=None if max_memory is None else parse_size("max-memory", max_memory, "4GB or 512MB"),
        between=between,
        max_bandwidth=None if max_bandwidth is None else parse_size("max-bandwidth", max_bandwidth, "500KB or 2MB"),
        sandbox=parse_level(sandbox),
        proxy=proxy,
        labels=parse_labels(label or ()),
    )
    environment = {**os.environ, **settings.to_environment(), **(ignore_proxy_exceptions() if proxy else {})}
    os.execve(sys.executable, [sys.executable, "-c", AGENT], environment)  # noqa: S606


@app.command("doctor")
def doctor_command(
    state: Path = STATE,
    data: str = typer.Option(
        "", metavar="FOLDER|FILE.npz|module:callable", help="The same as for `run`; checked if given."
    ),
    device: str = typer.Option("cpu", metavar="cpu|cuda", help="The accelerator."),
    proxy: str = PROXY,
    json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Check this machine as a device: sandbox, memory, disk, clock, torch, accelerator, certificate, coordinator.

    The exit code is 0 if no check failed, and 1 otherwise.

    \b
    Examples:
      moonfed-client doctor
      moonfed-client doctor --data pictures/ --device cuda --json
    """  # noqa: D301
    from moonfed.edge_client.doctor.checks import DoctorSettings, checks
    from moonfed.edge_client.doctor.report import document, healthy, line

    found = []
    for check in checks(DoctorSettings(state=state, data=data, accelerator=device, proxy=proxy)):
        found.append(check)
        if not json:
            print(line(check), flush=True)
    if json:
        print_json(document(found))
    raise typer.Exit(0 if healthy(found) else 1)


@app.command("predict")
def predict_command(
    paths: list[Path] = typer.Argument(
        None, metavar="PATH…", help="Images, folders of images, or an .npz file with inputs."
    ),
    run: str = typer.Option(
        "", help="The run whose model to use. Default: the newest finished run; the device keeps the last two."
    ),
    state: Path = STATE,
    device: str = typer.Option("cpu", metavar="cpu|cuda", help="The accelerator."),
    threads: int = typer.Option(None, help="CPU threads. Default: torch's choice."),
    sandbox: str = SANDBOX,
    json: bool = typer.Option(False, "--json", help="Print all probabilities as JSON."),
) -> None:
    """Classify with the model of a finished run. Also works while `moonfed-client run` is running.

    \b
    Examples:
      moonfed-client predict picture.jpg
      moonfed-client predict pictures/ --run digits --json
      moonfed-client predict samples.npz --state /var/lib/moonfed
    """  # noqa: D301
    from moonfed.edge_client.predict import ComputeSettings, predict, print_predictions

    computing = ComputeSettings(accelerator=device, threads=threads, sandbox=parse_level(sandbox))
    predictions = predict(paths or [], state, computing, run=run)
    if json:
        print_json(predictions.to_document())
    else:
        print_predictions(predictions)


@app.command("profile")
def profile_command(
    bundle: Path = typer.Argument(..., metavar="BUNDLE", help="A bundle: a directory or a .zip."),
    device: str = typer.Option("cpu", metavar="cpu|cuda", help="The accelerator."),
    threads: int = typer.Option(None, help="CPU threads for training. Default: torch's choice."),
    precision: str = typer.Option("float32", metavar="float32|bfloat16|float16", help="The same as for `run`."),
    memory_format: str = typer.Option(None, metavar="contiguous|channels-last", help="The same as for `run`."),
    samples: int = typer.Option(5000, metavar="N", help="Samples per round."),
    batch_size: int = typer.Option(None, metavar="B", help="Default: the bundle's."),
    epochs: int = typer.Option(None, metavar="E", help="Default: the bundle's."),
    max_memory: str = typer.Option(None, metavar="SIZE", help="The same as for `run`, such as 4GB."),
    sandbox: str = SANDBOX,
    trust: Path = TRUST,
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Measure a bundle's time and memory on this device, and check whether the device can participate.

    Needs only the bundle: samples are random. The exit code is 0 if the device can participate. The bundle must be
    signed by a key of --trust, of the device in --state, or else of this user.

    \b
    Examples:
      moonfed-client profile digits-bundle
      moonfed-client profile bundle.zip --device cuda --samples 20000 --max-memory 4GB --json
    """  # noqa: D301
    from moonfed.edge_client.profile.measure import ProfileSettings, profile
    from moonfed.edge_client.profile.report import print_profile, print_progress

    settings = ProfileSettings(
        bundle=bundle,
        accelerator=device,
        threads=threads,
        precision=precision,
        memory_format=memory_format,
        samples=samples,
        batch_size=batch_size,
        epochs=epochs,
        max_memory=None if max_memory is None else parse_size("max-memory", max_memory, "4GB or 512MB"),
        sandbox=parse_level(sandbox),
        trust=trust,
        state=state,
    )
    print_profile(profile(settings, print_progress), as_json=json)


def main() -> NoReturn:
    """Run the program."""
    run_program(app, NAME, extra="images")
