"""The command that asks a model about pictures: the thing to try first."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line import print_json
from moonfed.operator import JsonOption

if TYPE_CHECKING:
    from moonfed.export.image_client import Classifier, Prediction


def classify(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Image files of any size.")],
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A server's gRPC address: `serve`, or Triton.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of a server: the model's name.")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(metavar="CA.pem", help="For a server with TLS: what its certificate is checked against."),
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="MODEL.onnx", help="Instead of a server, a file.")] = None,
    top: Annotated[int, typer.Option(help="How many classes to print.", min=1)] = 3,
    as_json: JsonOption = False,
) -> None:
    """Say what is in pictures, by a model that is served or lies in a file.

    Pictures are resized and converted to what the model takes. With --json, one line for each.

    Example: moonfed-export classify cat.jpg --server 127.0.0.1:8001 --model animals
    """
    from moonfed.export.image_client import classify_images

    for image, answers in classify_images(_classifier(server, model, tls_ca, file), images, top):
        if as_json:
            print_json({"image": str(image), "classes": [asdict(answer) for answer in answers]})
        else:
            print(f"{image}  {', '.join(map(_shown, answers))}", flush=True)


def _classifier(server: str | None, model: str | None, tls_ca: Path | None, file: Path | None) -> Classifier:
    from moonfed.errors import InvalidInput
    from moonfed.export.image_client import FileClassifier, ServedClassifier

    needed = "a model is needed: --server HOST:PORT with --model NAME, or --file MODEL.onnx"
    if file is not None:
        if server is not None or model is not None or tls_ca is not None:
            raise InvalidInput(f"{needed}, and not of both")
        return FileClassifier(file)
    if server is None or model is None:
        raise InvalidInput(needed)
    return ServedClassifier(server, model, tls_ca)


def _shown(answer: Prediction) -> str:
    return f"{answer.label or f'class {answer.index}'} {answer.confidence:.4f}"
