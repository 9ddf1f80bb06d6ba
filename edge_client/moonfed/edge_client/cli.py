"""The command line of `moonfed-client`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from moonfed.command_line.log_options import LogFormatOption, LogLevelOption, OtlpOption
from moonfed.command_line.programs import new_app, print_json, run_program
from moonfed.data.formats import IGNORE_FOLDER_HELP, METAVAR, TARGET_HELP
from moonfed.edge_client.installed_packages import find_installed_packages
from moonfed.edge_client.settings import DeviceSettings
from moonfed.edge_client.state.state_version import require_readable_state
from moonfed.formatting import iso_time
from moonfed.labels import parse_labels
from moonfed.plan.selection import AUTO
from moonfed.sandbox.policy import parse_level
from moonfed.sizes import parse_size
from moonfed.transport.proxy import ignore_proxy_exceptions, parse_proxy

NAME = "moonfed-client"
HELP = """Run this machine as a device of a moonfed federation. Training data never leave it.

\b
Enrol once with the join token from the coordinator's operator, then run:
  moonfed-client enrol moonfed-join-1.eyJ… --name camera-7
  moonfed-client run --data pictures/
  moonfed-client predict picture.jpg       # once a release has been deployed to this device
"""


def _readable(state: Path) -> Path:
    """Return a state directory; raise VersionMismatch if another release wrote it, before anything is changed."""
    require_readable_state(state)
    return state


STATE = typer.Option(
    Path("moonfed-device"),
    "--state",
    help="Directory for the device's identity, plans and models.",
    callback=_readable,
)
TRUST = typer.Option(
    None, "--trust", metavar="FILE", help="The engineer's trust file. Default: the device's, or else your own."
)
DEVICE = typer.Option("cpu", "--device", metavar="cpu|cuda", help="Compute on the CPU or on a CUDA GPU.")
PROXY = typer.Option(
    "",
    metavar="http://HOST:PORT",
    help="An HTTP proxy (CONNECT) to the coordinator. Default: the environment's, if any.",
)
IGNORE_FOLDER = typer.Option(None, "--ignore-folder", metavar="NAME", help=IGNORE_FOLDER_HELP)
TARGET = typer.Option("", "--target", metavar="COLUMN", help=TARGET_HELP)
SANDBOX = typer.Option(
    "strict",
    metavar="strict|weak|off",
    help="Isolation of plans; `doctor` reports the levels that this machine can enforce.",
)
PLAN_FORMAT = typer.Option(
    AUTO,
    metavar="auto|torchscript|graph",
    help="The form of plans to run. auto: TorchScript where this machine supports it, else the graphs. graph: never "
    "TorchScript.",
)
# Start the agent without the working directory on its path, where others may be able to write files.
AGENT = "import sys; sys.path[:] = filter(None, sys.path); from moonfed.edge_client.agent.main import main; main()"

app = new_app(HELP)


@app.command("enrol")
def enrol_command(
    token: str = typer.Argument(..., metavar="TOKEN_OR_FILE", help="A join token, or a file that contains one."),
    name: str = typer.Option(
        "", help="The device's name in the fleet. Default: the token's, the expired certificate's or the host's."
    ),
    coordinator: str = typer.Option(
        "", metavar="HOST:PORT", help="The coordinator's address. Default: the join token's."
    ),
    proxy: str = PROXY,
    trust: Path = typer.Option(
        None, metavar="FILE", help="The engineer's trust file. Default: the device's, or else the join token's."
    ),
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Enrol this device with a join token, or re-enrol it when its certificate has expired.

    The device then runs only bundles that are signed as the trust file requires. One that has a trust file keeps it,
    unless the token's is a later version that the same keys have signed, or --trust names another.

    \b
    Examples:
      moonfed-client enrol moonfed-join-1.eyJ… --name camera-7
      moonfed-client enrol token.txt --state /var/lib/moonfed --trust engineer.json
    """
    from moonfed.edge_client.agent.enrolment import enrol, read_token

    if proxy:
        parse_proxy(proxy)
        os.environ.update(ignore_proxy_exceptions())
    identity = enrol(
        read_token(token),
        name,
        state,
        coordinator or None,
        proxy,
        trust,
        say=lambda line: print(f"{NAME}: {line}", file=sys.stderr),
    )
    if json:
        print_json(
            {
                "device": identity.name,
                "coordinator": identity.address,
                "expires": iso_time(identity.expires.timestamp()),
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

    A device whose keys are replaced also forgets which versions of bundles it has accepted. Restart it to take part at
    once in runs that it has rejected.

    \b
    Examples:
      moonfed-client trust
      moonfed-client trust engineer.json --state /var/lib/moonfed
    """
    from moonfed.edge_client.state.trust import describe, load, replace_trust
    from moonfed.errors import NotFound
    from moonfed.signing.key_files import read_trust

    if file is not None:
        replace_trust(state, read_trust(file).verify())
    held = load(state)
    if held is None:
        raise NotFound(f"{state} has no trust file; give it one with: {NAME} trust FILE --state {state}")
    if json:
        expires = {"expires": iso_time(held.trust.expires or 0)}
        print_json({"trust": held.trust.to_document() | expires, "accepted": dict(held.accepted)})
    else:
        print(f"{state} trusts {describe(held.trust)} (version {held.trust.version} of the trust file)")


@app.command("run")
def run_command(
    data: str = typer.Option(
        None, metavar=METAVAR, help="This device's samples; see above. Without it, the device never trains."
    ),
    target: str = TARGET,
    ignore_folder: list[str] = IGNORE_FOLDER,
    state: Path = STATE,
    device: str = DEVICE,
    threads: int = typer.Option(None, help="CPU threads for training. Default: torch's choice."),
    precision: str = typer.Option(
        "float32",
        metavar="float32|bfloat16|float16",
        help="Precision of training; lower is faster on hardware that supports it.",
    ),
    memory_format: str = typer.Option(
        None,
        metavar="contiguous|channels-last",
        help="Memory layout of convolutions. Default: the fastest on most hardware.",
    ),
    plan_format: str = PLAN_FORMAT,
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
    holdout: float = typer.Option(
        0.0,
        help="Fraction of the samples to hold out, to score the model that each round starts from, answer "
        "`moonfed-coordinator run evaluate`, and compare new releases.",
    ),
    insecure: bool = typer.Option(
        False, "--insecure", help="Connect without TLS; only to a coordinator on this machine."
    ),
    coordinator: str = typer.Option(
        "", metavar="HOST:PORT", help="The coordinator's address. Default: the identity's."
    ),
    name: str = typer.Option("", help="The device's name; only with --insecure. Default: the host's."),
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    otlp_endpoint: OtlpOption = "",
    metrics_file: str = typer.Option(
        "", metavar="FILE.prom", help="Write metrics to this file for node_exporter's textfile collector."
    ),
) -> None:
    """Connect to the coordinator, train and submit updates, and install releases, until stopped.

    Without --data the device is for inference only: it installs releases, and takes part in no run.

    \b
    Data:
      pictures/            one folder of images per class, named like the bundle's classes
      customers.csv        or .parquet: a table with the bundle's columns, and a target column with class names
      samples.npz          inputs (uint8 [N, height, width, channels] or float32 [N, width]) and labels [N]
      my_module:load       load(input_spec, class_names) returns (inputs, labels); called for each round

    \b
    Examples:
      moonfed-client run --data pictures/ --device cuda --holdout 0.1
      moonfed-client run --data customers.csv --state /var/lib/moonfed
      moonfed-client run --data samples.npz --max-steps 50 --max-memory 4GB
      moonfed-client run --data samples.npz --between 22:00-06:00 --max-bandwidth 500KB
      moonfed-client run --data samples.npz --metrics-file /var/lib/node_exporter/moonfed.prom
      moonfed-client run --data samples.npz --label site=berlin --label camera=hd
      moonfed-client run --data samples.npz --insecure --coordinator localhost:7443 --name one
      moonfed-client run --label site=berlin
    """
    settings = DeviceSettings(
        state=str(state.resolve()),
        data=data,
        target=target,
        ignored_folders=tuple(ignore_folder or ()),
        accelerator=device,
        threads=threads,
        holdout=holdout,
        insecure=insecure,
        coordinator=coordinator,
        name=name,
        precision=precision,
        memory_format=memory_format,
        plan_format=plan_format,
        max_steps=max_steps,
        max_seconds=max_seconds,
        max_memory=None if max_memory is None else parse_size("max-memory", max_memory, "4GB or 512MB"),
        between=between,
        max_bandwidth=None if max_bandwidth is None else parse_size("max-bandwidth", max_bandwidth, "500KB or 2MB"),
        sandbox=parse_level(sandbox),
        proxy=proxy,
        labels=parse_labels(label or ()),
        log_format=log_format,
        log_level=log_level,
        otlp_endpoint=otlp_endpoint,
        metrics_file=str(Path(metrics_file).resolve()) if metrics_file else "",
    )
    handed_over = {**settings.to_environment(), **find_installed_packages().to_environment()}
    environment = {**os.environ, **handed_over, **(ignore_proxy_exceptions() if proxy else {})}
    os.execve(sys.executable, [sys.executable, "-c", AGENT], environment)  # noqa: S606


@app.command("doctor")
def doctor_command(
    state: Path = STATE,
    data: str = typer.Option("", metavar=METAVAR, help="The same as for `run`; checked if given."),
    ignore_folder: list[str] = IGNORE_FOLDER,
    device: str = DEVICE,
    proxy: str = PROXY,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Check this machine: sandbox, memory, disk, clock, torch, accelerator, certificate, coordinator.

    The exit code is 0 if no check failed, and 1 otherwise.

    \b
    Examples:
      moonfed-client doctor
      moonfed-client doctor --data pictures/ --device cuda --json
    """
    from moonfed.edge_client.doctor.checks import DoctorSettings, checks, document, healthy, line

    found = []
    settings = DoctorSettings(
        state=state, data=data, ignored_folders=tuple(ignore_folder or ()), accelerator=device, proxy=proxy
    )
    for check in checks(settings):
        found.append(check)
        if not json:
            print(line(check), flush=True)
    if json:
        print_json(document(found))
    raise typer.Exit(0 if healthy(found) else 1)


@app.command("predict")
def predict_command(
    paths: list[Path] = typer.Argument(
        None, metavar="PATH", help="Images or texts, folders of them, or one .npz, .csv or .parquet file."
    ),
    target: str = TARGET,
    model: str = typer.Option("", metavar="NAME", help="The release to use. Default: the only one on this device."),
    state: Path = STATE,
    device: str = typer.Option(
        "cpu", metavar="cpu|cuda|tensorrt", help="Where to run the model; tensorrt needs ONNX Runtime."
    ),
    threads: int = typer.Option(None, help="CPU threads. Default: the runtime's choice."),
    sandbox: str = SANDBOX,
    plan_format: str = PLAN_FORMAT,
    masks: Path = typer.Option(None, metavar="DIR", help="For segmentation: write each mask as DIR/NAME.mask.png."),
    json: bool = typer.Option(False, "--json", help="Print all probabilities, values or scores as JSON."),
) -> None:
    """Predict with a release that is installed on this device. Also works while `moonfed-client run` is running.

    ONNX Runtime runs the model if it is installed. Otherwise the bundle's plan does, in its sandbox.

    \b
    Examples:
      moonfed-client predict picture.jpg
      moonfed-client predict pictures/ --model digits --json
      moonfed-client predict customers.csv --state /var/lib/moonfed
    """
    from moonfed.edge_client.predict import predict, print_predictions
    from moonfed.edge_client.predictor import Predictor

    level = parse_level(sandbox)
    with Predictor(state, model, device=device, threads=threads, sandbox=level, plan_format=plan_format) as predictor:
        predictions = predict(paths or [], predictor, target, masks)
    if json:
        print_json(predictions.to_document())
    else:
        print_predictions(predictions)


@app.command("profile")
def profile_command(
    bundle: Path = typer.Argument(..., metavar="BUNDLE", help="A bundle: a directory or a .zip."),
    device: str = DEVICE,
    threads: int = typer.Option(None, help="CPU threads for training. Default: torch's choice."),
    precision: str = typer.Option("float32", metavar="float32|bfloat16|float16", help="The same as for `run`."),
    memory_format: str = typer.Option(None, metavar="contiguous|channels-last", help="The same as for `run`."),
    plan_format: str = PLAN_FORMAT,
    samples: int = typer.Option(None, metavar="N", help="Samples per round. Default: those of --data, or else 5000."),
    data: str = typer.Option("", metavar=METAVAR, help="The same as for `run`; checked and counted if given."),
    target: str = TARGET,
    ignore_folder: list[str] = IGNORE_FOLDER,
    batch_size: int = typer.Option(None, metavar="B", help="Default: the bundle's."),
    epochs: int = typer.Option(None, metavar="E", help="Default: the bundle's."),
    max_memory: str = typer.Option(None, metavar="SIZE", help="The same as for `run`, such as 4GB."),
    sandbox: str = SANDBOX,
    trust: Path = TRUST,
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Measure a bundle's time and memory on this device, and check whether the device can participate.

    Needs only the bundle: the samples are random, and their number is that of --data or --samples. The exit code is 0
    if the device can participate. The bundle must be signed as the trust file requires.

    \b
    Examples:
      moonfed-client profile digits-bundle
      moonfed-client profile bundle.zip --data pictures/
      moonfed-client profile bundle.zip --device cuda --samples 20000 --max-memory 4GB --json
    """
    from moonfed.edge_client.profile.measure import ProfileSettings, profile
    from moonfed.edge_client.profile.report import print_profile, print_progress

    settings = ProfileSettings(
        bundle=bundle,
        accelerator=device,
        threads=threads,
        precision=precision,
        memory_format=memory_format,
        plan_format=plan_format,
        samples=samples,
        data=data,
        target=target,
        ignored_folders=tuple(ignore_folder or ()),
        batch_size=batch_size,
        epochs=epochs,
        max_memory=None if max_memory is None else parse_size("max-memory", max_memory, "4GB or 512MB"),
        sandbox=parse_level(sandbox),
        trust=trust,
        state=state,
    )
    print_profile(profile(settings, print_progress), as_json=json)


@app.command("check")
def check_command(
    bundle: Path = typer.Argument(..., metavar="BUNDLE", help="A bundle: a directory or a .zip."),
    data: str = typer.Option(..., metavar=METAVAR, help="The same as for `run`."),
    target: str = TARGET,
    ignore_folder: list[str] = IGNORE_FOLDER,
    holdout: float = typer.Option(0.0, help="The same as for `run`."),
    device: str = DEVICE,
    precision: str = typer.Option("float32", metavar="float32|bfloat16|float16", help="The same as for `run`."),
    plan_format: str = PLAN_FORMAT,
    max_memory: str = typer.Option(None, metavar="SIZE", help="The same as for `run`, such as 4GB."),
    trust: Path = TRUST,
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Check whether this device is eligible for a bundle's runs. It makes the same check when the coordinator asks.

    Compares the bundle with the installed torch, the data (format, labels, class names, number of samples) and the
    device's memory, and counts the samples of each class. The exit code is 0 if the device is eligible. The bundle must
    be signed as the trust file requires.

    \b
    Examples:
      moonfed-client check digits-bundle --data pictures/
      moonfed-client check bundle.zip --data customers.csv --max-memory 2GB --json
    """
    from moonfed.edge_client.check import CheckSettings, check_bundle, print_check

    settings = CheckSettings(
        bundle=bundle,
        data=data,
        target=target,
        ignored_folders=tuple(ignore_folder or ()),
        holdout=holdout,
        accelerator=device,
        precision=precision,
        plan_format=plan_format,
        max_memory=None if max_memory is None else parse_size("max-memory", max_memory, "4GB or 512MB"),
        trust=trust,
        state=state,
    )
    print_check(check_bundle(settings), as_json=json)


def main() -> NoReturn:
    """Run the program."""
    run_program(app, NAME, extra="images")
