"""Enrolment through the command line, and identities on disk."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from moonfed.command_line.exit_codes import exit_code
from moonfed.edge_client.agent import enrolment
from moonfed.edge_client.agent.enrolment import pending_key, read_identity, read_token, store_identity
from moonfed.edge_client.state.round_store import writing
from moonfed.edge_client.state.trust import DeviceTrust, load, pin
from moonfed.errors import Corrupt, ResourceExhausted, Unavailable, Untrusted, VersionMismatch
from moonfed.signing.key_files import write_trust
from moonfed.signing.trust import Trust, TrustChain
from moonfed.transport.identity import key_bytes, new_key, save_identity, signing_request
from moonfed.transport.join_token import JoinToken
from tests.edge_client.conftest import PROGRAM, Device
from tests.support.authority import Authority, certified_key, public_bytes
from tests.support.device_coordinator import PATIENCE, Coordinator
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, ROTATED, TRUST, issued, trust

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hasty_programs")]


def enrol(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(PROGRAM), "enrol", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_device_enrols_and_connects(
    coordinator: Coordinator, token: JoinToken, device: Device, samples: Path
) -> None:
    done = enrol(str(token), "--name", "cam-1", "--state", device.state, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["device"], told["coordinator"]) == ("cam-1", coordinator.address)
    identity = read_identity(device.state)
    assert (identity.name, identity.address) == ("cam-1", coordinator.address)
    assert (device.state / "identity" / "key.pem").stat().st_mode & 0o077 == 0
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")


def test_a_device_trusts_the_keys_of_its_token_or_of_a_file(token: JoinToken, tmp_path: Path) -> None:
    assert enrol(str(token), "--name", "cam-1", "--state", tmp_path / "one").returncode == 0
    assert load(tmp_path / "one") == DeviceTrust(trust=TRUST)
    write_trust(tmp_path / "other.json", TrustChain((issued(trust(3), 3),)))
    options = ("--state", tmp_path / "two", "--trust", tmp_path / "other.json")
    assert enrol(str(token), "--name", "cam-2", *options).returncode == 0
    assert load(tmp_path / "two") == DeviceTrust(trust=trust(3))
    done = enrol(str(replace(token, trust=None)), "--name", "cam-3", "--state", tmp_path / "three")
    message = "the join token contains no trust file; name the engineer's with --trust"
    assert (done.returncode, done.stderr) == (2, f"moonfed-client: {message} (docs: errors/invalid-input)\n")
    assert not (tmp_path / "three").exists()


def test_trust_is_shown_and_replaced(tmp_path: Path) -> None:
    def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [str(PROGRAM), "trust", *map(str, arguments), "--state", str(tmp_path / "state")]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    done = call()
    assert (done.returncode, "has no trust file" in done.stderr) == (3, True)
    write_trust(tmp_path / "engineer.json", CHAIN)
    done = call(tmp_path / "engineer.json")
    told = f"{tmp_path / 'state'} trusts bundles signed with {TRUST.keys[0]} (version 1 of the trust file)\n"
    assert (done.returncode, done.stdout) == (0, told)
    assert json.loads(call("--json").stdout) == {"trust": TRUST.to_document(), "accepted": {}}
    (tmp_path / "engineer.json").write_text("[]")
    assert call(tmp_path / "engineer.json").returncode == 2


def test_a_token_may_be_in_a_file_and_the_coordinator_elsewhere(
    coordinator: Coordinator, token: JoinToken, tmp_path: Path
) -> None:
    away = JoinToken(address="127.0.0.1:1", ca=token.ca, secret=token.secret, trust=CHAIN)
    (tmp_path / "token.txt").write_text(f"{away}\n")
    address = token.address.replace("127.0.0.1", "localhost")
    done = enrol(tmp_path / "token.txt", "--name", "cam-1", "--state", tmp_path / "s", "--coordinator", address)
    assert done.returncode == 0, done.stderr
    assert "cam-1 is enrolled" in done.stdout
    assert read_identity(tmp_path / "s").address == f"localhost:{coordinator.port}"


def test_an_enrolled_device_keeps_its_identity(device: Device, token: JoinToken) -> None:
    device.enrol()
    before = read_identity(device.state)
    done = enrol(str(token), "--name", "cam-2", "--state", device.state)
    assert done.returncode == 4
    assert "the identity of 'cam-1'" in done.stderr
    assert read_identity(device.state) == before


def test_an_expired_identity_is_enrolled_again_with_its_name_and_key(
    coordinator: Coordinator, token: JoinToken, device: Device, samples: Path
) -> None:
    device.enrol(left=-timedelta(minutes=1))
    before = read_identity(device.state)
    done = enrol(str(token), "--name", "cam-2", "--state", device.state)
    assert done.returncode == 4
    assert "expired identity of 'cam-1'" in done.stderr
    done = enrol(str(token), "--state", device.state)
    assert done.returncode == 0, done.stderr
    after = read_identity(device.state)
    assert (after.name, after.key) == ("cam-1", before.key)
    assert after.expires > before.expires
    device.start(samples)
    coordinator.wait_for(lambda: coordinator.connect_requests, "the device")


def test_a_device_that_is_killed_before_it_has_its_certificate_keeps_its_name(
    coordinator: Coordinator, token: JoinToken, device: Device
) -> None:
    arguments = [str(PROGRAM), "enrol", str(token), "--name", "cam-1", "--state", str(device.state)]
    first = subprocess.Popen(arguments, stderr=subprocess.PIPE)
    coordinator.before_enrol_reply = first.kill
    first.communicate(timeout=PATIENCE)
    assert first.returncode == -signal.SIGKILL
    assert "cam-1" in coordinator.keys
    pending = device.state / "pending-key.pem"
    assert pending.stat().st_mode & 0o077 == 0
    coordinator.before_enrol_reply = lambda: None
    done = enrol(*arguments[2:])
    assert done.returncode == 0, done.stderr
    assert certified_key(read_identity(device.state).certificate) == coordinator.keys["cam-1"]
    assert not pending.exists()


@pytest.mark.parametrize("recorded", [True, False])
def test_a_certificate_that_expires_while_a_renewal_is_pending_is_enrolled_again(
    recorded: bool, coordinator: Coordinator, token: JoinToken, device: Device
) -> None:
    device.enrol(left=-timedelta(minutes=1))
    own, pending = read_identity(device.state).key, pending_key(device.state)
    if recorded:  # the coordinator answered the renewal; the device's disk was full
        coordinator.keys["cam-1"] = public_bytes(pending.public_key())
    renewed = enrolment.enrol(token, "", device.state)
    assert certified_key(renewed.certificate) == coordinator.keys["cam-1"]
    assert renewed.key == (key_bytes(pending) if recorded else own)


def test_a_state_directory_that_cannot_be_written_is_named(token: JoinToken, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("in the way")
    for command in (["enrol", str(token)], ["run", "--data", "x.npz"]):
        done = subprocess.run(
            [str(PROGRAM), *command, "--state", str(tmp_path / "s" / "t")], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2
        assert "Not a directory" in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_a_disk_that_is_full_or_read_only_may_be_mended(tmp_path: Path, number: int) -> None:
    """The exit code is one after which systemd restarts the device."""
    with pytest.raises(ResourceExhausted, match="cannot be written") as error, writing(tmp_path):
        raise OSError(number, os.strerror(number))
    unit = Path("deploy/moonfed-client.service").read_text()
    (line,) = re.findall(r"RestartPreventExitStatus=(.*)", unit)
    assert str(exit_code(error.value)) not in line.split()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_state_directory_ends_with_an_exit_code_that_is_restarted(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", state], capture_output=True)  # noqa: S607
    if mounted.returncode:
        pytest.skip("this machine permits no mounts")
    try:
        command = [str(PROGRAM), "run", "--data", "x.npz", "--state", str(state)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    finally:
        subprocess.run(["umount", state], check=True)  # noqa: S607
    assert (done.returncode, done.stderr.count("\n")) == (8, 1)
    assert "Read-only file system" in done.stderr


def test_a_token_that_the_coordinator_rejects_is_explained(
    coordinator: Coordinator, token: JoinToken, tmp_path: Path
) -> None:
    coordinator.enrol_error = Untrusted("the join token has expired; ask the operator for a new one")
    done = enrol(str(token), "--state", tmp_path / "s")
    assert done.returncode == 5
    assert done.stderr == f"moonfed-client: {coordinator.enrol_error} (docs: errors/untrusted)\n"
    assert not (tmp_path / "s").exists()


def test_a_rejected_request_keeps_a_key_that_an_earlier_one_left(
    coordinator: Coordinator, token: JoinToken, tmp_path: Path
) -> None:
    pending_key(tmp_path / "s")  # its request may be on record, with a lost reply
    coordinator.enrol_error = Untrusted("the join token has expired; ask the operator for a new one")
    with pytest.raises(Untrusted):
        enrolment.enrol(token, "cam-1", tmp_path / "s")
    assert (tmp_path / "s" / "pending-key.pem").exists()


def test_a_server_not_signed_by_the_tokens_authority_is_rejected(token: JoinToken, tmp_path: Path) -> None:
    other = JoinToken(address=token.address, ca=Authority().pem, secret=token.secret, trust=CHAIN)
    done = enrol(str(other), "--state", tmp_path / "s")
    assert done.returncode == 5
    assert "that this join token" in done.stderr
    assert not (tmp_path / "s").exists()


def test_nobody_at_the_address_is_explained_after_a_few_tries(
    token: JoinToken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "ATTEMPTS", 2)
    with refused(Unavailable, "coordinator", "127.0.0.1:1"):
        enrolment.enrol(token, "cam-1", tmp_path / "s", "127.0.0.1:1")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no-such-file", "'no-such-file' does neither"),
        ("moonfed-join-1.xyz", "damaged or cut off"),
        ("x" * 300, "does neither"),
    ],
)
def test_an_invalid_token_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    done = enrol(text, "--state", tmp_path / "s")
    assert done.returncode == 2
    assert message in done.stderr


def test_an_identity_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()

    def issue() -> None:
        key, certificate = authority.issue("cam-1", "device")
        store_identity(tmp_path, address="localhost:1", ca=authority.pem, certificate=certificate, key=key)

    issue()
    before = read_identity(tmp_path)

    def cut_off(directory: Path, **fields: object) -> None:
        save_identity(directory, **fields)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(enrolment, "save_identity", cut_off)
        with pytest.raises(KeyboardInterrupt):
            issue()
    assert read_identity(tmp_path) == before
    issue()
    assert read_identity(tmp_path).key != before.key
    assert len(list(tmp_path.glob("identity-*"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "tpu"], "device is 'tpu'"),
        (["--holdout", "1"], "holdout is 1.0"),
        (["--threads", "0"], "threads is 0"),
        (["--insecure"], "coordinator is missing"),
        (["--name", "x"], "name is 'x'"),
        (["--insecure", "--coordinator", "foo"], "coordinator is 'foo'"),
        (["--max-bandwidth", "fast"], "max-bandwidth is 'fast'"),
        (["--insecure", "--coordinator", "example.org:1"], "without TLS (--insecure)"),
    ],
)
def test_wrong_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    command = [str(PROGRAM), "run", "--data", "x.npz", "--state", str(tmp_path / "s"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("a" * 64, id="64 characters"),
        pytest.param("a" * 65, id="more than a certificate can hold"),
        pytest.param("ä" * 65, id="65 other letters"),
        pytest.param("Camera", id="a capital"),
    ],
)
def test_a_name_that_no_device_can_have_leaves_nothing_behind(name: str, token: JoinToken, tmp_path: Path) -> None:
    done = enrol(str(token), "--state", tmp_path / "state", "--name", name)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"device is {name!r}" in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_wrong_address_is_named_when_enrolling(token: JoinToken, tmp_path: Path) -> None:
    done = enrol(str(token), "--state", tmp_path / "state", "--coordinator", "foo")
    assert done.returncode == 2
    assert done.stderr.startswith("moonfed-client: coordinator is 'foo'; it must be host:port")
    assert not (tmp_path / "state").exists()


def test_running_without_enrolment_is_one_sentence(tmp_path: Path) -> None:
    command = [str(PROGRAM), "run", "--data", "x.npz", "--state", str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 3
    assert "holds no identity" in done.stderr


def test_a_token_for_a_device_replaces_its_identity_and_its_key(
    coordinator: Coordinator, token: JoinToken, device: Device
) -> None:
    device.enrol()
    before = read_identity(device.state)
    coordinator.keys.clear()  # as the real one does for such a token
    own = replace(token, device="cam-1")
    done = enrol(str(own), "--name", "cam-2", "--state", device.state)
    told = "moonfed-client: name is 'cam-2'; it must be 'cam-1', because the join token is for this device"
    told += " (docs: errors/invalid-input)\n"
    assert (done.returncode, done.stderr) == (2, told)
    assert read_identity(device.state) == before
    done = enrol(str(own), "--state", device.state)
    assert done.returncode == 0, done.stderr
    after = read_identity(device.state)
    assert after.name == "cam-1"
    assert after.key != before.key, "it may have leaked"


def test_a_token_for_a_device_names_a_new_board(token: JoinToken, device: Device) -> None:
    done = enrol(str(replace(token, device="cam-7")), "--state", device.state)
    assert done.returncode == 0, done.stderr
    assert read_identity(device.state).name == "cam-7"


def test_a_token_for_a_device_replaces_no_other_devices_identity(token: JoinToken, device: Device) -> None:
    device.enrol()
    before = read_identity(device.state)
    done = enrol(str(replace(token, device="cam-7")), "--state", device.state)
    assert done.returncode == 4
    assert "join token is for 'cam-7'" in done.stderr
    assert read_identity(device.state) == before


STRANGER = TrustChain((issued(trust(9), 9),))
TAKEOVER = TrustChain((*CHAIN.envelopes, issued(trust(9, version=2), 9)))
TWO_OF_TWO = TrustChain((issued(trust(1, 2, threshold=2), 1, 2),))
ONE_OF_TWO = TrustChain((issued(trust(1, 2), 1, 2),))


@pytest.mark.parametrize(
    ("held", "offered", "code"),
    [
        (TRUST, STRANGER, 5),  # an operator makes the token with a trust file of their own
        (trust(1, 2, threshold=2), ONE_OF_TWO, 5),  # one of two engineers' keys is to suffice
        (trust(1, 2), TWO_OF_TWO, 5),
        (TRUST, TAKEOVER, 5),  # version 2 that no key of version 1 has signed
        (trust(2, version=2), STRANGER, 0),  # older: nothing is replaced, and both are named
        (trust(2, version=2), CHAIN, 0),
    ],
)
def test_the_trusted_keys_stay_when_a_token_has_others(
    held: Trust, offered: TrustChain, code: int, token: JoinToken, device: Device, coordinator: Coordinator
) -> None:
    device.enrol(left=-timedelta(minutes=1))
    pin(device.state, held)
    before = (device.state / "trust.json").read_bytes(), read_identity(device.state)
    done = enrol(str(replace(token, trust=offered)), "--state", device.state)
    assert done.returncode == code, done.stderr
    assert (device.state / "trust.json").read_bytes() == before[0]
    assert (read_identity(device.state) == before[1]) == (code != 0)
    for keys in (held.keys, offered.newest.keys):
        assert all(str(key) in done.stderr for key in keys), done.stderr
    assert not (device.state / "pending-key.pem").exists()


def test_a_trust_file_set_before_enrolment_stays(token: JoinToken, tmp_path: Path) -> None:
    pin(tmp_path / "state", trust(3))
    done = enrol(str(token), "--name", "cam-1", "--state", tmp_path / "state")
    assert done.returncode == 5
    assert load(tmp_path / "state") == DeviceTrust(trust=trust(3))
    assert not (tmp_path / "state" / "identity").exists()


def test_a_token_with_a_rotation_signed_by_the_trusted_keys_updates_them(token: JoinToken, device: Device) -> None:
    device.enrol(left=-timedelta(minutes=1))
    done = enrol(str(replace(token, trust=ROTATED)), "--state", device.state)
    assert done.returncode == 0, done.stderr
    assert "2 of a trust file" in done.stderr
    assert load(device.state) == DeviceTrust(trust=trust(2, version=2))


@pytest.mark.parametrize("damaged", [False, True])
def test_only_an_explicit_trust_file_replaces_other_keys(
    damaged: bool, token: JoinToken, device: Device, tmp_path: Path
) -> None:
    device.enrol(left=-timedelta(minutes=1))
    if damaged:
        (device.state / "trust.json").write_text("{")
        assert enrol(str(token), "--state", device.state).returncode == 7
    write_trust(tmp_path / "theirs.json", STRANGER)
    done = enrol(str(token), "--state", device.state, "--trust", tmp_path / "theirs.json")
    assert done.returncode == 0, done.stderr
    assert load(device.state) == DeviceTrust(trust=trust(9))


def certificates(authority: Authority, key: ec.EllipticCurvePrivateKey) -> dict[str, bytes]:
    """Return certificates that a malicious coordinator may send for a key."""
    other = new_key()
    request = signing_request(key, "cam-1")
    return {
        "garbage": b"\x1b]52;c;AAAA\x07",
        "too large": authority.sign(request, "cam-1") + b"\n" * (1 << 17),
        "another key": authority.sign(signing_request(other, "cam-1"), "cam-1"),
        "another authority": Authority().sign(request, "cam-1"),
        "escape sequence": authority.sign(request, "cam\x1b[2J-1"),
        "path": authority.sign(request, "../../cam"),
    }


@pytest.mark.parametrize(
    "name", ["garbage", "too large", "another key", "another authority", "escape sequence", "path"]
)
def test_a_certificate_that_is_not_the_devices_replaces_nothing(
    name: str, coordinator: Coordinator, device: Device
) -> None:
    device.enrol()
    before, key = read_identity(device.state), new_key()
    wrong = certificates(coordinator.authority, key)[name]
    with pytest.raises(Corrupt) as caught:
        store_identity(device.state, address=before.address, ca=before.ca, certificate=wrong, key=key_bytes(key))
    assert str(caught.value).isprintable()
    assert read_identity(device.state) == before


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_a_token_may_be_in_a_file_that_windows_wrote(token: JoinToken, tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "token.txt").write_bytes(f"{mark}{token}\r\n".encode(encoding))
    assert read_token(str(tmp_path / "token.txt")) == token
    assert read_token(f"\ufeff{token}") == token


def test_a_token_of_a_later_coordinator_is_no_name_of_a_file(token: JoinToken) -> None:
    with refused(VersionMismatch, "format", "moonfed-join-2"):
        read_token(str(token).replace("moonfed-join-1", "moonfed-join-2"))
