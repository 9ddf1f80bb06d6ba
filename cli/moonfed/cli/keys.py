"""Commands for the keys that sign bundles: create, rotate, show, sign."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.cli.options import BundleVersionOption, ExpiresOption, SignersOption, print_step
from moonfed.command_line.programs import new_group, print_json
from moonfed.formatting import iso_time
from moonfed.signing.key_files import KEYS_VARIABLE, TRUST_FILE, default_directory
from moonfed.transport.operator_options import JsonOption

if TYPE_CHECKING:
    from moonfed.signing.trust import TrustChain

HELP = """Manage the keys that sign bundles, and the trust file that lists them.

Example: moonfed-export keys show
"""
DAY = 24 * 3600
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", metavar="DIR", envvar=KEYS_VARIABLE, help="Your keys. Default: ~/.config/moonfed."),
]
keys_app = new_group(HELP)


@keys_app.command()
def create(keys: KeysOption = None, as_json: JsonOption = False) -> None:
    """Create a key, and a trust file that lists it. `bundle` does the same when it first signs.

    Example: moonfed-export keys create
    """
    from moonfed.signing.key_files import create_keys

    directory = keys or default_directory()
    path = create_keys(directory)
    if as_json:
        print_json({"key": str(path), "trust": str(directory / TRUST_FILE)})
    else:
        print(f"created the signing key {path}, which {directory / TRUST_FILE} lists")


@keys_app.command()
def show(keys: KeysOption = None, as_json: JsonOption = False) -> None:
    """Show the keys that the trust file lists, and those whose private half is in its directory.

    Example: moonfed-export keys show --json
    """
    from moonfed.signing.bundle_signature import moment
    from moonfed.signing.key_files import read_trust

    directory = keys or default_directory()
    trust = read_trust(directory / TRUST_FILE).verify()
    here = [(key, (directory / f"key-{key}.pem").exists()) for key in trust.keys]
    if as_json:
        listed = [{"id": key.id, "private": private} for key, private in here]
        document = {
            "version": trust.version,
            "threshold": trust.threshold,
            "expires": iso_time(trust.expires or 0),
            "keys": listed,
        }
        print_json({"directory": str(directory), **document})
        return
    expires = f", expires {moment(trust.expires)}" if trust.expires else ""
    print(f"{directory / TRUST_FILE}: version {trust.version}, threshold {trust.threshold}{expires}")
    for key, private in here:
        print(f"key {key.id}{'  private key is here' if private else ''}")


@keys_app.command()
def rotate(
    add: Annotated[
        list[Path] | None, typer.Option("--add", metavar="KEY.pub", help="Add this public key; repeatable.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="ID", help="Remove the key with this id; repeatable.")
    ] = None,
    threshold: Annotated[
        int | None, typer.Option(metavar="N", help="Number of keys that must sign a bundle. Default: as before.")
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Lifetime of this trust file in days. Default: unlimited.")
    ] = None,
    keys: KeysOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace your key with a new one, or change the listed keys with --add, --remove or --threshold.

    The next version of the trust file is signed with the private keys in its directory. Devices receive it with the
    next bundle. If other owners have to sign, it is written to trust-VERSION.json for them to `sign`.

    Example: moonfed-export keys rotate

    Example: moonfed-export keys rotate --add colleague.pub --threshold 2
    """
    from moonfed.export.trust_rotation import Change, rotate_trust

    directory = keys or default_directory()
    expires = None if expires_days is None else int(time.time() + expires_days * DAY)
    change = Change(add=tuple(add or ()), remove=tuple(remove or ()), threshold=threshold, expires=expires)
    path, chain = rotate_trust(directory, change)
    _print_trust(path, chain, as_json=as_json)


def sign(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE|TRUST.json", help="A bundle, or a new trust file.")],
    signers: SignersOption = None,
    expires_days: ExpiresOption = 365.0,
    version: BundleVersionOption = None,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Replace the bundle's signatures. Default: add yours to those of your trust file's keys, keeping "
            "their version and expiry, and replace any others.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Sign a bundle, or add a signature to a bundle or trust file that several owners must sign.

    A signature means: I trust this plan's author with the data. `inspect` shows the contents. A bundle whose plan
    devices would reject is not signed.

    Example: moonfed-export sign my-bundle --renew --expires-days 30
    """
    from moonfed.export.bundle_signing import SigningOptions, resign
    from moonfed.export.trust_rotation import sign_trust
    from moonfed.signing.key_files import open_signer

    if path.suffix == ".json":
        _print_trust(path, sign_trust(path, tuple(signers or ())), as_json=as_json)
        return
    options = SigningOptions(version=version, expires_days=expires_days)
    signed = resign(path, open_signer(signers or [], print_step), options, renew=renew)
    if as_json:
        print_json({"path": str(path), "version": signed.version, "signatures": signed.signatures})
    else:
        print(f"{path} is signed as version {signed.version}{signed.missing}")


def _print_trust(path: Path, chain: TrustChain, *, as_json: bool) -> None:
    from moonfed.errors import UntrustedBundle

    missing = ""
    try:
        chain.verify()
    except UntrustedBundle as error:
        missing = str(error)
    if as_json:
        print_json({"trust": str(path), "version": chain.newest.version, "missing": missing})
    elif missing:
        print(f"{path} needs more signatures ({missing}); its owners add them with: moonfed-export sign {path.name}")
    else:
        replacing = "" if path.name == TRUST_FILE else f"every owner must now replace {TRUST_FILE} with it; "
        then = f"{replacing}devices receive it with the next bundle"
        print(f"{path} is version {chain.newest.version} of the trust file; {then}")
