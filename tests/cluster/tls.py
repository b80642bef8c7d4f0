"""Certificates of a cluster, made by openssl: one authority, and one certificate for all."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from cluster.etcd import Tls

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def made(folder: Path, addresses: Iterable[str]) -> Tls:
    """Make an authority, and a certificate that servers at these addresses and clients show."""
    ca, ca_key = folder / "ca.pem", folder / "ca-key.pem"
    cert, key = folder / "cert.pem", folder / "key.pem"
    _run(["-subj", "/CN=engram-test", "-keyout", ca_key, "-out", ca])
    names = ",".join(f"IP:{address}" for address in addresses)
    usage = ["extendedKeyUsage=serverAuth,clientAuth", f"subjectAltName={names}"]
    signed: list[str | Path] = ["-subj", "/CN=engram", "-CA", ca, "-CAkey", ca_key]
    for each in ("basicConstraints=critical,CA:false", *usage):
        signed += ["-addext", each]
    _run([*signed, "-keyout", key, "-out", cert])
    return Tls(cert, key, ca)


def _run(words: list[str | Path]) -> None:
    line = ["openssl", "req", "-x509", *CURVE, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(line)}: {done.stderr}"
