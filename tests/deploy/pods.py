"""Pods of Kubernetes' manifests, whose containers run here as processes of the same programs.

A container has the variables and mounted files of its manifest and, where the tests run as root, its user and its
read-only root directory. Only paths, addresses and ports differ: what the manifest mounts at /PATH is at ROOT/PATH.
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
PROGRAMS = {
    "moonfed-coordinator": "moonfed.coordinator.cli.program",
    "moonfed-client": "moonfed.edge_client.cli",
    "moonfed-export": "moonfed.cli.program",
}
WAIT = 60.0  # seconds; a program that takes longer is considered stuck
USER = 10001  # nobody here
MOUNTED = Path("/mnt")  # where a container sees its ROOT
# In a mount namespace of its own: ROOT becomes MOUNTED, which alone can be written to.
_READ_ONLY = 'mount --make-rprivate / && mount --bind "$0" /mnt && mount -o remount,bind,ro / && exec "$@"'
_VARIABLE = re.compile(r"\$\((\w+)\)")
Document = dict[str, Any]


@functools.cache
def missing() -> str:
    """Return the reason if manifests cannot be rendered here, else an empty text."""
    if not shutil.which("kubectl"):
        return "there is no kubectl: apt-get install kubernetes-client"
    command = ["kubectl", "version", "--client", "--output=json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    kustomize = found.get("kustomizeVersion", "v2").lstrip("v").partition(".")[0]  # an old release names none
    return "" if int(kustomize) >= 5 else "kubectl must be 1.27 or later, as Debian 13's kubernetes-client is"


@functools.cache
def rendered(directory: str) -> tuple[Document, ...]:
    """Return the documents of a kustomization."""
    command = ["kubectl", "kustomize", str(KUBERNETES / directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stderr  # warnings
    return tuple(yaml.safe_load_all(done.stdout))


def named(documents: Sequence[Document], kind: str, name: str) -> Document:
    """Return one document; kustomize adds a hash to the names of generated ones."""
    (found,) = [
        each
        for each in documents
        if each["kind"] == kind and re.fullmatch(rf"{name}(-[a-z0-9]{{10}})?", each["metadata"]["name"])
    ]
    return found


def workloads(documents: Sequence[Document]) -> list[Document]:
    return [each for each in documents if each["kind"] in ("StatefulSet", "Deployment")]


def pod_of(workload: Document) -> Document:
    spec = workload["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def variables(documents: Sequence[Document], container: Document, pod_name: str) -> dict[str, str]:
    """Return a container's variables."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= named(documents, "ConfigMap", source["configMapRef"]["name"])["data"]
    for entry in container.get("env", []):
        field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        assert field in (None, "metadata.name")
        found[entry["name"]] = pod_name if field else entry["value"]
    return found


def expanded(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return words in which $(NAME) is replaced, as the kubelet does it; KeyError for an unknown name."""
    return [_VARIABLE.sub(lambda match: known[match[1]], word) for word in words]


def write_volume(directory: Path, files: Mapping[str, bytes], mode: int, group: int) -> None:
    """Write a Secret's volume as the kubelet does: read-only files of root and the pod's group, behind two links."""
    content = directory / "..2026_11_29"
    content.mkdir(parents=True)
    (directory / "..data").symlink_to(content.name)
    for name, data in files.items():
        file = content / name
        file.write_bytes(data)
        file.chmod(mode)
        if os.geteuid() == 0:
            os.chown(file, 0, group)
        (directory / name).symlink_to(Path("..data") / name)


@functools.cache
def isolates() -> bool:
    """Return whether containers can have their own user and a read-only root here."""
    return os.geteuid() == 0 and _runs([*namespace(Path("/")), *_user(USER)])


@functools.cache
def _is_open_to_all() -> bool:
    """Return whether every user of this machine can run these programs; not if Python is in root's home."""
    return _runs(_ids(USER))


def _runs(prefix: Sequence[str]) -> bool:
    command = [*prefix, "env", sys.executable, "-c", "import moonfed.coordinator"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def namespace(root: Path) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", _READ_ONLY, str(root)]


def _user(user: int) -> list[str]:
    """Return the prefix of a program that runs as a user whom this machine does not know."""
    right = () if _is_open_to_all() else ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return [*_ids(user), "--no-new-privs", *right]


def _ids(user: int) -> list[str]:
    return ["setpriv", *(f"--{kind}={user}" for kind in ("reuid", "regid", "groups"))]


@dataclass(frozen=True)
class Pod:
    """A pod of a workload: its volumes are directories in `root`, which outlast its containers."""

    documents: Sequence[Document]
    workload: Document
    name: str
    root: Path

    def __post_init__(self) -> None:
        (self.root / "programs").mkdir(exist_ok=True)
        for name, module in PROGRAMS.items():
            program = self.root / "programs" / name
            program.write_text(f"#!{sys.executable}\nfrom {module} import main\n\nmain()\n")
            program.chmod(0o755)
        for container in (*self.spec.get("initContainers", []), *self.spec["containers"]):
            for mount in container["volumeMounts"]:
                directory = self.root / mount["mountPath"].lstrip("/")
                directory.mkdir(parents=True, exist_ok=True)
                if not mount.get("readOnly") and os.geteuid() == 0:  # as fsGroup does
                    os.chown(directory, 0, self.group)
                    directory.chmod(0o2775)

    @property
    def spec(self) -> Document:
        return pod_of(self.workload)

    @property
    def group(self) -> int:
        group = self.spec["securityContext"]["fsGroup"]
        assert isinstance(group, int)
        return group

    def path(self, mounted: str) -> Path:
        """Return the place of a path in the pod."""
        return self.root / mounted.lstrip("/")

    def give(self, volume: str, files: Mapping[str, bytes]) -> None:
        """Fill a volume of a Secret or a ConfigMap."""
        (source,) = [each for each in self.spec["volumes"] if each["name"] == volume]
        mode = (source.get("secret") or source["configMap"])["defaultMode"]
        containers = (*self.spec.get("initContainers", []), *self.spec["containers"])
        (path,) = {mount["mountPath"] for one in containers for mount in one["volumeMounts"] if mount["name"] == volume}
        write_volume(self.path(path), files, mode, self.group)

    def command(
        self, container: Document, entrypoint: Sequence[str], changed: Sequence[str], environment: Mapping[str, str]
    ) -> list[str]:
        """Return what runs a container, with further arguments and variables."""
        known = variables(self.documents, container, self.name)
        words = [*container.get("command", entrypoint), *expanded(container.get("args", []), known)]
        inside = MOUNTED if isolates() else self.root
        places = sorted(mount["mountPath"] for mount in container["volumeMounts"])
        place = re.compile(r"(?<![\w.$/-])(" + "|".join(map(re.escape, places)) + r')(?=[/"\s]|$)')

        def moved(text: str) -> str:
            return place.sub(lambda match: f"{inside}{match[1]}", text)

        given = {name: moved(value) for name, value in known.items()} | dict(environment)
        given |= {"PATH": f"{inside}/programs{os.pathsep}{os.environ['PATH']}", "TMPDIR": f"{inside}/tmp"}
        user = self.spec["securityContext"]["runAsUser"]
        prefix = [*namespace(self.root), *_user(user)] if isolates() else []
        settings = [f"{name}={value}" for name, value in given.items()]
        return [*prefix, "env", "--ignore-environment", *settings, *map(moved, words), *changed]

    def initialise(self, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the init container."""
        (container,) = self.spec["initContainers"]
        command = self.command(container, (), (), environment or {})
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.root)

    @contextmanager
    def running(
        self, entrypoint: Sequence[str], changed: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Iterator[Running]:
        """Run the container; `changed` gives free ports, which are printed as JSON, and `environment` addresses."""
        (container,) = self.spec["containers"]
        words = self.command(container, entrypoint, changed, environment or {})
        log = self.root / "log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=self.root, start_new_session=True
            )
        try:
            yield Running(self, container, process, log)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout
            process.stdout.close()


@dataclass
class Running:
    """A container that runs; its process is the program itself."""

    pod: Pod
    container: Document
    process: subprocess.Popen[str]
    log: Path

    def printed(self) -> dict[str, Any]:
        """Return the line of JSON that the program prints when it is ready."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    def probe(self, kind: str, ports: Mapping[str, int]) -> str:
        """Return what a probe of the manifest gets: a status, `open`, or the name of the error."""
        probe = self.container[kind]
        action = probe.get("httpGet") or probe["tcpSocket"]
        port, timeout = ports[action["port"]], float(probe["timeoutSeconds"])
        try:
            if "tcpSocket" in probe:
                socket.create_connection(("127.0.0.1", port), timeout).close()
                return "open"
            return str(_get(action, port, timeout))
        except OSError as error:
            return type(error).__name__

    def stop(self) -> float:
        """Send SIGTERM; return how many seconds the program took to end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=WAIT) in (0, -signal.SIGTERM), self.log.read_text()
        return time.monotonic() - began


def anyone() -> ssl.SSLContext:
    """Return a context for clients that verify no certificate."""
    found = ssl.create_default_context()
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    return found


def _get(action: Document, port: int, timeout: float) -> int:
    """Return the status of a GET, as the kubelet sends it: it verifies no certificate."""
    headers = {each["name"]: each["value"] for each in action.get("httpHeaders", [])}
    connection: http.client.HTTPConnection
    if action.get("scheme") == "HTTPS":
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout, context=anyone())
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", action["path"], headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()
