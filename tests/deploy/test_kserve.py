"""Checks of KServe's manifests without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.lock_requirements import read_pinned

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = ("kserve-triton.yaml", "kserve-moonfed.yaml")
# Of kserve's v1beta1 API: PredictorSpec is a pod's spec with one framework; a container is Kubernetes' own.
POD = {
    "containers",
    "volumes",
    "model",
    "minReplicas",
    "maxReplicas",
    "serviceAccountName",
    "nodeSelector",
    "tolerations",
}
CONTAINER = {
    "name", "image", "command", "args", "env", "ports", "readinessProbe", "livenessProbe", "resources", "volumeMounts",
}  # fmt: skip
MODEL = CONTAINER | {"modelFormat", "runtime", "protocolVersion", "runtimeVersion", "storageUri", "storage"}


def manifest(name: str) -> dict[str, Any]:
    (document,) = yaml.safe_load_all((DEPLOY / name).read_text())
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_a_valid_inference_service(name: str) -> None:
    document = manifest(name)
    assert (document["apiVersion"], document["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
    assert document["metadata"]["name"] == "digits"
    predictor = document["spec"]["predictor"]
    assert set(predictor) <= POD
    for container in predictor.get("containers", [predictor.get("model")]):
        assert set(container) <= (MODEL if "model" in predictor else CONTAINER)
        asked, allowed = container["resources"]["requests"], container["resources"]["limits"]
        assert set(asked) == set(allowed) == {"cpu", "memory"}
        assert all(isinstance(value, str) for value in (*asked.values(), *allowed.values(), *container["args"]))


def test_triton_polls_the_repository_that_its_runtime_mounts() -> None:
    model = manifest("kserve-triton.yaml")["spec"]["predictor"]["model"]
    assert model["modelFormat"] == {"name": "triton"}
    assert model["protocolVersion"] == "v2"
    assert "--model-control-mode=poll" in model["args"]
    assert any(each.startswith("--repository-poll-secs=") for each in model["args"])
    claim, _, path = model["storageUri"].removeprefix("pvc://").partition("/")
    assert (claim, path) == ("moonfed-models", "models")  # the repository; its directories are models


def test_our_server_listens_on_the_ports_of_kserve_and_its_probes() -> None:
    (container,) = manifest("kserve-moonfed.yaml")["spec"]["predictor"]["containers"]
    assert container["name"] == "kserve-container"
    assert container["command"] == ["moonfed-export", "serve"]
    repository, *options = container["args"]
    chosen = dict(zip(options[::2], options[1::2], strict=True))
    assert repository == "/mnt/models"  # where KServe puts what STORAGE_URI names
    assert [entry["name"] for entry in container["env"]] == ["STORAGE_URI"]
    assert chosen["--host"] == "0.0.0.0"
    (mount,), (volume,) = container["volumeMounts"], manifest("kserve-moonfed.yaml")["spec"]["predictor"]["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], str(Path(chosen["--api-key-file"]).parent))
    for probe, word in (("readinessProbe", "ready"), ("livenessProbe", "live")):
        assert str(container[probe]["httpGet"]["port"]) == chosen["--http-port"]
        assert container[probe]["httpGet"]["path"] == f"/v2/health/{word}"
    assert [str(port["containerPort"]) for port in container["ports"]] == [chosen["--http-port"]]


def test_the_server_image_installs_the_serving_dependencies_without_torch() -> None:
    text = (DEPLOY / "server.Dockerfile").read_text()
    assert "--requirement /tmp/requirements/server.txt" in text
    found = {each.name for each in read_pinned((ROOT / "requirements" / "server.txt").read_text())}
    assert {"onnxruntime", "starlette", "tritonclient"} <= found
    assert "torch" not in found
    ignored = (DEPLOY / "server.Dockerfile.dockerignore").read_text()
    assert ignored == (DEPLOY / "cpu.Dockerfile.dockerignore").read_text()


def test_the_server_image_listens_with_authentication_only() -> None:
    text = (DEPLOY / "server.Dockerfile").read_text()
    command = json.loads(next(line for line in text.splitlines() if line.startswith("CMD ")).removeprefix("CMD "))
    assert command[1:3] == ["--host", "0.0.0.0"]
    assert "--api-key-file" in command
