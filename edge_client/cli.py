"""The program moonfed-client: enrols a device, and runs it."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from moonfed.cli import INTERRUPTED, new_app, print_json, run_program
from moonfed.errors import InvalidInput, WrongState

if TYPE_CHECKING:
    from edge_client.link import Link

NAME = "moonfed-client"
HELP = """A device of a moonfed federation: trains on data that never leave it.

\b
Enrol once, with the join token that the coordinator's operator gave you, then run:
  moonfed-client enrol moonfed-join-1.eyJ… --name camera-7
  moonfed-client run --data pictures/
"""
STATE = typer.Option(Path("moonfed-device"), "--state", help="Directory for the device's identity, plans and models.")

app = new_app(HELP)


@app.command("enrol")
def enrol_command(
    token: str = typer.Argument(..., metavar="TOKEN_OR_FILE", help="A join token, or a file that holds one."),
    name: str = typer.Option(socket.gethostname(), help="The device's name in the fleet."),
    coordinator: str = typer.Option("", metavar="HOST:PORT", help="Replaces the join token's address."),
    state: Path = STATE,
    json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Exchange a join token for this device's certificate.

    \b
    Examples:
      moonfed-client enrol moonfed-join-1.eyJ… --name camera-7
      moonfed-client enrol token.txt --state /var/lib/moonfed
    """  # noqa: D301 - click's mark for text that is not to be wrapped
    from edge_client.enrolment import enrol, read_token

    identity = enrol(read_token(token), name, state, coordinator or None)
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


@app.command("run")
def run_command(
    data: str = typer.Option(..., metavar="FOLDER|FILE.npz|module:callable", help="This device's samples; see above."),
    state: Path = STATE,
    device: str = typer.Option("cpu", metavar="cpu|cuda", help="What to train on."),
    threads: int = typer.Option(None, help="CPU threads for training. Default: torch's choice."),
    holdout: float = typer.Option(0.0, help="Fraction of the samples that is never trained on, only evaluated."),
    insecure: bool = typer.Option(False, "--insecure", help="Without TLS, to a coordinator on this machine only."),
    coordinator: str = typer.Option("", metavar="HOST:PORT", help="Replaces the enrolled address."),
    name: str = typer.Option("", help="The device's name; only with --insecure. Default: the host's."),
) -> None:
    """Attend the coordinator, train when asked to, submit updates; until stopped.

    \b
    Data:
      pictures/            one folder of images per class, named like the bundle's classes
      samples.npz          arrays inputs [N, …] and labels [N]
      my_module:load       load(input_spec, class_names) returns (inputs, labels), anew for each round

    \b
    Examples:
      moonfed-client run --data pictures/ --device cuda --holdout 0.1
      moonfed-client run --data samples.npz --state /var/lib/moonfed
      moonfed-client run --data samples.npz --insecure --coordinator localhost:8443 --name one
    """  # noqa: D301
    _check_values(device, threads, holdout)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    from edge_client.child import Child
    from edge_client.messages import WorkerSettings
    from edge_client.session import Session

    with _sole_user(state):
        link = _open_link(state, insecure, coordinator, name)
        settings = WorkerSettings(
            state=str(state.resolve()),
            device=link.device,
            data=data,
            accelerator=device,
            holdout=holdout,
            threads=threads,
        )
        Session(settings, link, Child(settings)).run()


def main() -> NoReturn:
    """Runs the program."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what goes wrong is explained by us, once
    run_program(app, NAME)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Ends the session from wherever it is; SIGTERM is how services are stopped, so it is no failure."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the rest is quick, and must not be cut short
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"{NAME}: stopped", file=sys.stderr)
    sys.exit(INTERRUPTED if number == signal.SIGINT else 0)


def _check_values(device: str, threads: int | None, holdout: float) -> None:
    if device not in ("cpu", "cuda"):
        raise InvalidInput(f"device is {device!r}; it must be 'cpu' or 'cuda'")
    if threads is not None and threads < 1:
        raise InvalidInput(f"threads is {threads}; it must be a whole number from 1")
    if not 0 <= holdout < 1:
        raise InvalidInput(f"holdout is {holdout}; it must be at least 0 and less than 1")


@contextmanager
def _sole_user(state: Path) -> Iterator[None]:
    """Holds STATE's lock; WrongState if another process runs with this directory."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WrongState(f"another {NAME} runs with the state directory {state}") from error
        yield


def _open_link(state: Path, insecure: bool, coordinator: str, name: str) -> Link:
    from edge_client.enrolment import read_identity
    from edge_client.link import Link

    if insecure:
        if not coordinator:
            raise InvalidInput("coordinator is missing; --insecure needs --coordinator HOST:PORT")
        return Link(coordinator, name or socket.gethostname(), None)
    if name:
        raise InvalidInput(f"name is {name!r}; it goes with --insecure only, an enrolled device has its name already")
    identity = read_identity(state)
    return Link(coordinator or identity.address, identity.name, identity)
