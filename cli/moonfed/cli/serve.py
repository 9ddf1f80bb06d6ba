"""The commands that serve a model repository, and create API keys for its clients."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.log_options import LogFormatOption, LogLevelOption
from moonfed.command_line.programs import print_json
from moonfed.errors import InvalidInput
from moonfed.transport.operator_options import JsonOption

if TYPE_CHECKING:
    from moonfed.serving.server import ServingPorts

MODEL_CONTROLS = ("poll", "explicit")


def serve(
    repository: Annotated[Path, typer.Argument(metavar="REPOSITORY", help="A model repository, in Triton's layout.")],
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; unless it is loopback, give --api-key-file or --tls-client-ca."),
    ] = "127.0.0.1",
    grpc_port: Annotated[int, typer.Option(help="The gRPC port; 0: any free one.")] = 8001,
    http_port: Annotated[int, typer.Option(help="The HTTP port; 0: any free one.")] = 8000,
    metrics_port: Annotated[
        int, typer.Option(help="The port of Prometheus metrics, at /metrics; 0: any free one.")
    ] = 8002,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="The TLS private key; every port then accepts only TLS.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="CERTIFICATE.pem", help="The key's certificate, followed by its chain.")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(metavar="CA.pem", help="Accept only clients with a certificate of this authority; needs TLS."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="KEYS", help="Accept only requests with a key in this file; see `api-key`."),
    ] = None,
    verify_key: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="KEY.pub", help="Load only versions signed with this public key, or one of several; repeatable."
        ),
    ] = None,
    model_control: Annotated[
        str,
        typer.Option(
            metavar="poll|explicit", help="Serve everything in the repository, or only models that clients load."
        ),
    ] = "poll",
    poll_seconds: Annotated[
        float, typer.Option(help="Seconds between scans of the repository; 0: only at the start.")
    ] = 5.0,
    provider: Annotated[
        str,
        typer.Option(
            metavar="cpu|cuda|tensorrt",
            help="Execution provider; a missing one is an error, not a fallback to the CPU.",
        ),
    ] = "cpu",
    intra_op_threads: Annotated[int, typer.Option(help="Threads per run of a model; 0: one per core.", min=0)] = 1,
    max_request_size: Annotated[str, typer.Option(metavar="SIZE", help="The largest request accepted.")] = "64MB",
    max_concurrent_requests: Annotated[
        int, typer.Option(help="Inference requests in flight; more are rejected as unavailable.", min=1)
    ] = 256,
    drain_seconds: Annotated[float, typer.Option(help="Seconds to wait for requests in flight on shutdown.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ports as one line of JSON.")] = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Serve the models of a repository over the Open Inference Protocol (KServe v2), as Triton does.

    It offers gRPC and HTTP with Triton's extensions; clients such as tritonclient and KServe's work unchanged. It runs
    until SIGTERM or Ctrl-C, then finishes the requests in flight.

    Example: moonfed-export serve models --host 0.0.0.0 --api-key-file keys
    """
    from moonfed.observability.logs import configure_logs
    from moonfed.serving.models.manager import ServingSettings
    from moonfed.serving.server import serve as run_server
    from moonfed.serving.server_settings import ServerSettings
    from moonfed.sizes import parse_size

    if model_control not in MODEL_CONTROLS:
        raise InvalidInput(field="model-control", value=model_control, allowed=f"one of {', '.join(MODEL_CONTROLS)}")
    configure_logs(log_format, log_level)
    explicit = model_control == "explicit"
    settings = ServerSettings(
        repository=repository,
        models=ServingSettings(
            provider=provider,
            intra_op_threads=intra_op_threads,
            explicit=explicit,
            poll_seconds=0.0 if explicit else poll_seconds,
            verify_keys=tuple(verify_key or ()),
        ),
        host=host,
        grpc_port=grpc_port,
        http_port=http_port,
        metrics_port=metrics_port,
        tls_key=tls_key,
        tls_certificate=tls_certificate,
        tls_client_ca=tls_client_ca,
        api_key_file=api_key_file,
        max_request_bytes=parse_size("max-request-size", max_request_size, "64MB"),
        max_concurrent_requests=max_concurrent_requests,
        drain_seconds=drain_seconds,
    )
    run_server(settings, lambda ports: _print_ready(repository, host, ports, as_json=as_json))


def _print_ready(repository: Path, host: str, ports: ServingPorts, *, as_json: bool) -> None:
    if as_json:
        print_json({f"{name}_port": port for name, port in asdict(ports).items()})
    else:
        print(
            f"serving {repository} on {host}: gRPC {ports.grpc}, HTTP {ports.http}, metrics {ports.metrics}", flush=True
        )


def api_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The caller's name, shown in the file and in messages.")],
    file: Annotated[
        Path, typer.Option("--file", metavar="KEYS", help="The file of `serve --api-key-file`; created if absent.")
    ],
    admin: Annotated[
        bool, typer.Option("--admin", help="Also permit loading and unloading models, and reading metrics.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create an API key for a client of `serve`: print it, once, and add its hash to a file.

    To revoke a key, delete its line; running servers notice within a second.

    Example: moonfed-export api-key alice --file keys
    """
    from moonfed.serving.requests.api_keys import create_key

    key = create_key(file, name, admin=admin)
    if as_json:
        print_json({"name": name, "key": key})
    else:
        print(key)
