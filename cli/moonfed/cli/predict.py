"""The command that predicts for images and rows of tables with a served model or an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.transport.operator_options import JsonOption

if TYPE_CHECKING:
    from moonfed.release.predict import ClientCredentials, Model


def predict(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Images, or one folder or .npz, .csv or .parquet file."),
    ],
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
        typer.Option(
            metavar="KEY.pub",
            help="With --file: require the model to be signed with this public key, or one of several; repeatable.",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of classes to print.", min=1)] = 3,
    masks: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="For segmentation: write each mask as DIR/NAME.mask.png."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict for images or rows of a table with a served model or an ONNX file.

    Images are decoded and resized to the model's input, and tables are encoded, as for training. --json uses the same
    format as `moonfed-client predict`.

    Example: moonfed-export predict cat.jpg --server 127.0.0.1:8001 --model animals
    """
    from moonfed.release.predict import ClientCredentials, predict_paths

    credentials = ClientCredentials(tls_ca=tls_ca, tls_certificate=tls_certificate, tls_key=tls_key, api_key=api_key)
    chosen = _model(server, model, credentials, file, verify_key or [])
    predictions = predict_paths(chosen, paths, top, masks)
    if as_json:
        print_json({"predictions": [each.document for each in predictions]})
        return
    for each in predictions:
        print(each.text(chosen.target), flush=True)


def _model(
    server: str | None, model: str | None, credentials: ClientCredentials, file: Path | None, verify_keys: list[Path]
) -> Model:
    from moonfed.errors import InvalidInput
    from moonfed.release.predict import ClientCredentials, FileModel, ServedModel

    needed = "a model is needed: --server HOST:PORT with --model NAME, or --file MODEL.onnx"
    if file is not None:
        if server is not None or model is not None or credentials != ClientCredentials():
            raise InvalidInput(
                "file is given together with options for a server; give either --file MODEL.onnx, or --server "
                "HOST:PORT with --model NAME"
            )
        return FileModel(file, verify_keys)
    if verify_keys:
        raise InvalidInput("verify-key is given without file; a server verifies its models, with `serve --verify-key`")
    if server is None or model is None:
        raise InvalidInput(needed)
    return ServedModel(server, model, credentials)
