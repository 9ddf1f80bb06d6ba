"""The command that classifies images with a served model or an ONNX file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line import print_json
from moonfed.operator import JsonOption

if TYPE_CHECKING:
    from moonfed.export.image_client import Classifier, ClientCredentials, Prediction


def classify(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Image files of any size.")],
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The gRPC address of `serve` or Triton.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --server: the model's name.")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="CA.pem", help="With --server: use TLS and verify the server's certificate against this CA."
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(metavar="CERTIFICATE.pem", help="With --tls-ca: the client's certificate and its chain."),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="With --tls-certificate: its private key.")
    ] = None,
    api_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --server: a file that contains the API key."),
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="MODEL.onnx", help="An ONNX file instead of a server.")] = None,
    verify_key: Annotated[
        list[Path] | None,
        typer.Option(metavar="KEY.pub", help="With --file: a public key that must have signed the model; repeatable."),
    ] = None,
    top: Annotated[int, typer.Option(help="How many classes to print.", min=1)] = 3,
    as_json: JsonOption = False,
) -> None:
    """Classify images with a served model or an ONNX file.

    Images are decoded and resized to the model's input. With --json, prints one line per image.

    Example: moonfed-export classify cat.jpg --server 127.0.0.1:8001 --model animals
    """
    from moonfed.export.image_client import ClientCredentials, classify_images

    credentials = ClientCredentials(tls_ca=tls_ca, tls_certificate=tls_certificate, tls_key=tls_key, api_key=api_key)
    classifier = _classifier(server, model, credentials, file, verify_key or [])
    for image, predictions in classify_images(classifier, images, top):
        if as_json:
            print_json({"image": str(image), "classes": [asdict(prediction) for prediction in predictions]})
        else:
            print(f"{image}  {', '.join(map(_format, predictions))}", flush=True)


def _classifier(
    server: str | None, model: str | None, credentials: ClientCredentials, file: Path | None, verify_keys: list[Path]
) -> Classifier:
    from moonfed.errors import InvalidInput
    from moonfed.export.image_client import ClientCredentials, FileClassifier, ServedClassifier

    needed = "a model is needed: --server HOST:PORT with --model NAME, or --file MODEL.onnx"
    if file is not None:
        if server is not None or model is not None or credentials != ClientCredentials():
            raise InvalidInput(f"{needed}, but not both")
        return FileClassifier(file, verify_keys)
    if verify_keys:
        raise InvalidInput("verify-key is given without file; a server verifies its models, with `serve --verify-key`")
    if server is None or model is None:
        raise InvalidInput(needed)
    return ServedClassifier(server, model, credentials)


def _format(prediction: Prediction) -> str:
    return f"{prediction.label or f'class {prediction.index}'} {prediction.confidence:.4f}"
