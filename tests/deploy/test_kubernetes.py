"""Kubernetes' manifests: valid by the API's schemas, and consistent with each other, the programs and their page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import typer.main

from moonfed.cli.program import app as export_app
from moonfed.coordinator.cli.program import app as coordinator_app
from moonfed.edge_client.cli import app as client_app
from tests.deploy.pods import KUBERNETES, Document, expanded, missing, named, pod_of, rendered, variables, workloads
from tests.deploy.test_deploy import values

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
OVERLAYS = ("overlays/production", "overlays/test")
DIRECTORIES = sorted(str(file.parent.relative_to(KUBERNETES)) for file in KUBERNETES.rglob("kustomization.yaml"))
VERSIONS = ("1.30", kubernetes_validate.latest_version())  # the oldest that the page names, and the newest
OURS = {  # the image of a container, its Dockerfile, and the command that its arguments are of
    "coordinator": ("coordinator", coordinator_app),
    "console": ("coordinator", coordinator_app),
    "server": ("server", export_app),
    "device": ("cpu", client_app),
}
DNS = {("UDP", 53), ("TCP", 53)}
APPLICATION = "app.kubernetes.io/name"


def every() -> list[Any]:
    """Return each workload of an overlay as a parameter."""
    if missing():
        return []
    return [
        pytest.param(rendered(overlay), each, id=f"{overlay.rpartition('/')[2]}-{each['metadata']['name']}")
        for overlay in OVERLAYS
        for each in workloads(rendered(overlay))
    ]


of_every_workload = pytest.mark.parametrize(("documents", "workload"), every())


def label(document: Document) -> str:
    """Return the application that a workload's pods are labelled with."""
    found = document["spec"]["template"]["metadata"]["labels"]
    assert set(found) == {APPLICATION}
    return str(found[APPLICATION])


def of_application(documents: Sequence[Document], name: str) -> Document:
    (found,) = [each for each in workloads(documents) if label(each) == name]
    return found


def policy_of(documents: Sequence[Document], name: str) -> Document:
    policies = [each["spec"] for each in documents if each["kind"] == "NetworkPolicy"]
    (found,) = [each for each in policies if each["podSelector"] == {"matchLabels": {APPLICATION: name}}]
    assert isinstance(found, dict)
    return found


def containers(workload: Document) -> list[Document]:
    spec = pod_of(workload)
    return [*spec.get("initContainers", []), *spec["containers"]]


def ports(workload: Document) -> dict[str, int]:
    (container,) = pod_of(workload)["containers"]
    return {each["name"]: each["containerPort"] for each in container.get("ports", [])}


def parsed(documents: Sequence[Document], workload: Document) -> dict[str, Any]:
    """Return the options of a container of ours, as its program reads them."""
    (container,) = pod_of(workload)["containers"]
    dockerfile, app = OURS[container["name"]]
    entrypoint = re.findall(r'"([^"]+)"', values(dockerfile, "ENTRYPOINT")[0])
    pod_name = f"{workload['metadata']['name']}-1"
    given = expanded(container["args"], variables(documents, container, pod_name))
    name, arguments = (entrypoint[1:] + given)[0], (entrypoint[1:] + given)[1:]
    command: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    with command.make_context(name, arguments) as context:
        assert not context.args
        found = context.params
    assert isinstance(found, dict)
    return found


def is_ours(workload: Document) -> bool:
    return pod_of(workload)["containers"][0]["name"] in OURS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_document_is_valid_for_the_api(directory: str, version: str) -> None:
    documents = rendered(directory)
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(names)) == len(names) > 1


def test_the_page_names_the_oldest_version_that_is_checked() -> None:
    assert f"Kubernetes {VERSIONS[0]}" in PAGE
    with pytest.raises(kubernetes_validate.ValidationError):  # a release before it lacks preStop's sleep
        kubernetes_validate.validate(named(rendered("coordinator"), "StatefulSet", "moonfed-coordinator"), "1.28", True)


@of_every_workload
def test_selectors_and_labels_agree(documents: Sequence[Document], workload: Document) -> None:
    own = {"matchLabels": {APPLICATION: label(workload)}}
    assert workload["spec"]["selector"] == own
    for each in pod_of(workload).get("topologySpreadConstraints", []):
        assert each["labelSelector"] == own
    for service in [each["spec"] for each in documents if each["kind"] == "Service"]:
        selected = of_application(documents, service["selector"][APPLICATION])
        assert {port["targetPort"] for port in service["ports"]} <= ports(selected).keys()
        if "clusterIP" not in service:
            for port in service["ports"]:
                assert port["port"] in (ports(selected)[port["targetPort"]], 443)


@of_every_workload
def test_a_headless_service_names_the_replicas(documents: Sequence[Document], workload: Document) -> None:
    if label(workload) == "moonfed-coordinator":
        service = named(documents, "Service", workload["spec"]["serviceName"])
        assert service["spec"]["clusterIP"] == "None"


@of_every_workload
def test_a_command_is_valid_and_its_ports_are_the_containers(documents: Sequence[Document], workload: Document) -> None:
    if not is_ours(workload):
        return
    options = parsed(documents, workload)
    listened = {value for name, value in options.items() if re.fullmatch(r"(\w+_)?port", name)}
    assert listened == set(ports(workload).values())
    assert options.get("host", "0.0.0.0") == "0.0.0.0"
    assert options.get("metrics_host", "0.0.0.0") == "0.0.0.0"


@of_every_workload
def test_probes_ask_for_ports_of_the_container(documents: Sequence[Document], workload: Document) -> None:
    (container,) = pod_of(workload)["containers"]
    probes = {name: probe for name, probe in container.items() if name.endswith("Probe")}
    for probe in probes.values():
        action = probe.get("httpGet") or probe.get("tcpSocket")
        assert "exec" in probe or action["port"] in ports(workload)
    if is_ours(workload) and ports(workload):
        assert set(probes) == {"startupProbe", "readinessProbe", "livenessProbe"}
        # A probe of a busy program waits longer than the five seconds that a health check may take.
        if label(workload) == "moonfed-coordinator":
            assert all(probe["timeoutSeconds"] > 5 for probe in probes.values() if "httpGet" in probe)


@of_every_workload
def test_every_path_in_a_command_is_mounted(documents: Sequence[Document], workload: Document) -> None:
    for container in containers(workload):
        known = variables(documents, container, f"{workload['metadata']['name']}-1")
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        words = " ".join(expanded(container.get("args", []), known) + list(known.values()))
        used = {path for path in re.findall(r"(?<![\w:/.$}*])(/[a-z][\w./-]+)", words) if path != "/login"}
        for path in used:
            assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts), path
        volumes = {each["name"] for each in pod_of(workload)["volumes"]} | {
            each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])
        }
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        if "entrypoint" not in container:
            assert (
                "/tmp" in mounts or container["name"] == "authority"
            )  # whatever else it writes, the root is read-only


@of_every_workload
def test_secrets_are_files_of_the_names_that_the_page_creates(
    documents: Sequence[Document], workload: Document
) -> None:
    created = created_by_the_page()
    for volume in pod_of(workload)["volumes"]:
        kind = "secret" if "secret" in volume else "configMap"
        if kind not in volume:
            continue
        name = volume[kind].get("secretName") or volume[kind]["name"]
        assert (kind, name) in created, name
        assert volume[kind]["defaultMode"] == 0o440  # for the pod's group
        for path in {
            path
            for container in containers(workload)
            for mount in container["volumeMounts"]
            if mount["name"] == volume["name"]
            for path in re.findall(
                rf"{mount['mountPath']}/([\w.-]+)",
                " ".join(
                    expanded(container.get("args", []), variables(documents, container, "device-1"))
                    + list(variables(documents, container, "device-1").values())
                ),
            )
        }:
            assert path in created[kind, name], f"{name}: {path}"
    for container in containers(workload):
        assert all("secretKeyRef" not in str(entry) for entry in container.get("env", []))


def created_by_the_page() -> dict[tuple[str, str], set[str]]:
    """Return the keys of each Secret and ConfigMap that the page's commands create."""
    found = {}
    text = PAGE.replace("\\\n", " ")
    for kind, name, rest in re.findall(r"create (secret generic|secret tls|configmap) ([\w-]+)(.*)", text):
        keys = {file.partition("=")[0].rpartition("/")[2] for file in re.findall(r"--from-file[= ](\S+)", rest)}
        found["configMap" if kind == "configmap" else "secret", name] = keys | (
            {"tls.crt", "tls.key"} if kind == "secret tls" else set()
        )
    return found


@of_every_workload
def test_a_pod_meets_the_restricted_standard(documents: Sequence[Document], workload: Document) -> None:
    namespace = next(each for each in documents if each["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert workload["metadata"]["namespace"] == namespace["metadata"]["name"]
    spec = pod_of(workload)
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    context = spec["securityContext"]
    assert context["runAsNonRoot"]
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] > 0
    if any("persistentVolumeClaim" in each for each in spec["volumes"]) or "volumeClaimTemplates" in workload["spec"]:
        assert context["fsGroupChangePolicy"] == "OnRootMismatch"
    for container in containers(workload):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) == {"memory"}  # one of cpu would delay heartbeats
        assert ":" in container["image"], "a tag or a digest"


@of_every_workload
def test_a_pod_has_time_to_end(documents: Sequence[Document], workload: Document) -> None:
    if not is_ours(workload):
        return
    spec = pod_of(workload)
    (container,) = spec["containers"]
    slept = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    unit = re.search(r"^TimeoutStopSec=(\d+)$", (ROOT / "deploy/moonfed-coordinator.service").read_text(), re.MULTILINE)
    assert unit
    needed = {
        "moonfed-coordinator": int(unit[1]),
        "moonfed-server": parsed(documents, workload).get("drain_seconds", 0) + 5,
        "moonfed-console": 5,
        "moonfed-device": 30,
    }
    assert spec["terminationGracePeriodSeconds"] >= slept + needed[label(workload)]
    assert bool(slept) == bool(ports(workload))  # a load balancer needs time to notice


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_disruption_budgets_permit_a_drain_and_keep_a_replica(overlay: str) -> None:
    documents = rendered(overlay)
    budgets = {
        each["spec"]["selector"]["matchLabels"][APPLICATION]: each["spec"]
        for each in documents
        if each["kind"] == "PodDisruptionBudget"
    }
    for workload in workloads(documents):
        replicas, name = workload["spec"].get("replicas", 1), label(workload)
        if is_ours(workload) and replicas > 1 and name != "moonfed-device":
            assert 1 <= budgets[name]["maxUnavailable"] < replicas
            assert budgets[name]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        else:
            assert name not in budgets


def egress(policy: Document) -> Iterator[tuple[str, str, int]]:
    """Yield the application, or "" for any address, the protocol and the port of what a policy permits."""
    for rule in policy.get("egress", []):
        peers = [peer["podSelector"]["matchLabels"][APPLICATION] for peer in rule.get("to", [])] or [""]
        for peer in peers:
            yield from ((peer, port["protocol"], port["port"]) for port in rule["ports"])


@of_every_workload
def test_a_policy_permits_the_programs_ports_and_no_others(documents: Sequence[Document], workload: Document) -> None:
    policy = policy_of(documents, label(workload))
    assert policy["policyTypes"] == ["Ingress", "Egress"]  # so what is not permitted is denied
    rules = policy.get("ingress", [])
    incoming = {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}
    assert incoming.keys() == ports(workload).keys()
    assert all(port["protocol"] == "TCP" for rule in rules for port in rule["ports"])
    if "metrics" in incoming and is_ours(workload):
        (scraper,) = incoming["metrics"]
        assert scraper["podSelector"] == {"matchLabels": {APPLICATION: "prometheus"}}
    for peer, protocol, port in egress(policy):
        if peer:
            target = of_application(documents, peer)
            (name,) = [name for name, number in ports(target).items() if number == port]
            admitted = {
                each["port"]: rule.get("from")
                for rule in policy_of(documents, peer)["ingress"]
                for each in rule["ports"]
            }[name]
            own = {"podSelector": {"matchLabels": {APPLICATION: label(workload)}}}
            assert protocol == "TCP"
            assert admitted is None or own in admitted


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_coordinator_reaches_its_database_and_its_object_store(overlay: str) -> None:
    documents = rendered(overlay)
    settings = named(documents, "ConfigMap", "moonfed-coordinator")["data"]
    database = urlsplit(settings["MOONFED_DATABASE"])
    objects = urlsplit(settings.get("AWS_ENDPOINT_URL", "https://s3"))
    wanted = {("TCP", database.port or 5432), ("TCP", objects.port or 443)}
    allowed = set(egress(policy_of(documents, "moonfed-coordinator")))
    assert {(protocol, port) for _, protocol, port in allowed} == wanted | DNS
    services = {each["metadata"]["name"] for each in documents if each["kind"] == "Service"}
    for peer, protocol, port in allowed:
        assert bool(peer) == (overlay == "overlays/test" and (protocol, port) not in DNS)
    if overlay == "overlays/test":
        assert {database.hostname, objects.hostname} <= services


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_clients_in_the_cluster_reach_the_coordinator_by_a_name_in_its_certificate(overlay: str) -> None:
    documents = rendered(overlay)
    coordinator = of_application(documents, "moonfed-coordinator")
    options = parsed(documents, coordinator)
    assert "moonfed-coordinator" in options["name"]
    assert named(documents, "Service", "moonfed-coordinator")
    client = of_application(documents, "moonfed-console" if overlay == "overlays/production" else "moonfed-device")
    reached = {(peer, port) for peer, _, port in egress(policy_of(documents, label(client))) if peer}
    if overlay == "overlays/production":
        assert parsed(documents, client)["coordinator"] == f"moonfed-coordinator:{options['fleet_port']}"
        assert reached == {("moonfed-coordinator", options["fleet_port"])}
    else:
        assert options["name"][0] == "moonfed-coordinator"  # join tokens name it
        assert reached == {("moonfed-coordinator", options[port]) for port in ("fleet_port", "enrolment_port")}


def test_the_consoles_probes_name_it() -> None:
    documents = rendered("overlays/production")
    console = of_application(documents, "moonfed-console")
    (container,) = pod_of(console)["containers"]
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        (host,) = container[kind]["httpGet"]["httpHeaders"]
        assert host["value"] in parsed(documents, console)["name"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_the_load_balancer_is_reached_from_outside(overlay: str) -> None:
    services = [each for each in rendered(overlay) if each["kind"] == "Service"]
    outside = {each["metadata"]["name"] for each in services if each["spec"].get("type", "ClusterIP") != "ClusterIP"}
    assert outside == ({"moonfed-coordinator"} if overlay == "overlays/production" else set())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_our_images_are_those_that_the_page_builds(overlay: str) -> None:
    used = {
        container["image"]
        for workload in workloads(rendered(overlay))
        if is_ours(workload)
        for container in containers(workload)
    }
    assert all(image.startswith("registry.example.org/") for image in used)
    built = dict(re.findall(r"--file deploy/(\w+)\.Dockerfile --tag (\S+)", PAGE.replace("\\\n", " ")))
    assert used <= {image.replace("$REGISTRY", "registry.example.org") for image in built.values()}
    for workload in workloads(rendered(overlay)):
        for container in containers(workload):
            if is_ours(workload):
                dockerfile = OURS[pod_of(workload)["containers"][0]["name"]][0]
                assert container["image"] == built[dockerfile].replace("$REGISTRY", "registry.example.org")


def test_the_test_database_and_objects_read_the_secrets_of_the_coordinator() -> None:
    documents = rendered("overlays/test")
    secrets = {
        name: {
            each["secret"]["secretName"]
            for each in pod_of(of_application(documents, name))["volumes"]
            if "secret" in each
        }
        for name in ("database", "objects", "moonfed-coordinator")
    }
    assert secrets["database"] | secrets["objects"] < secrets["moonfed-coordinator"]
    compose = (ROOT / "deploy" / "compose.yaml").read_text()
    for name in ("database", "objects"):
        (container,) = pod_of(of_application(documents, name))["containers"]
        assert f":-{container['image']}}}" in compose


def test_the_page_says_what_was_not_tried() -> None:
    assert "have not run on a cluster" in PAGE
