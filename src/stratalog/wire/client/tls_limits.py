"""Limits of TLS versions and cipher suites: two keys of Kafka in OpenSSL's terms, for both ends."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: What OpenSSL always offers in TLS 1.3; its Python module cannot choose among them.
_SUITES_OF_13: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


def limit_tls(context: ssl.SSLContext, versions: Sequence[str], suites: Sequence[str], where: str) -> None:
    """Let a context speak these versions by these suites only; no suite names all of them.

    ValueError for what cannot be kept: it names the key behind `where`, and what to do.
    """
    context.minimum_version, context.maximum_version = _range(versions, where)
    if suites:
        _choose(context, suites, f"{where}ssl.cipher.suites={','.join(suites)}")


def _range(versions: Sequence[str], where: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    spoken = ",".join(TLS_VERSIONS)
    for name in versions:
        if name not in TLS_VERSIONS:
            raise ValueError(f"{where}ssl.enabled.protocols={','.join(versions)}: {name} is not spoken; use {spoken}")
    if not versions:
        raise ValueError(f"{where}ssl.enabled.protocols is empty: use {spoken}")
    found = [TLS_VERSIONS[name] for name in versions]
    return min(found), max(found)


def _choose(context: ssl.SSLContext, suites: Sequence[str], key: str) -> None:
    newer = _SUITES_OF_13.intersection(suites)
    if newer and newer != _SUITES_OF_13 and context.maximum_version is ssl.TLSVersion.TLSv1_3:
        missing = ", ".join(sorted(_SUITES_OF_13 - newer))
        raise ValueError(f"{key}: TLSv1.3 comes with all of its suites here; name {missing} too, or none")
    older = [suite for suite in suites if suite not in _SUITES_OF_13]
    if not newer:
        if context.minimum_version is ssl.TLSVersion.TLSv1_3:
            raise ValueError(f"{key}: names no suite of TLSv1.3, and ssl.enabled.protocols no other protocol")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        if context.maximum_version is not ssl.TLSVersion.TLSv1_3:
            raise ValueError(f"{key}: names no suite of TLSv1.2, and ssl.enabled.protocols no other protocol")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    names = [openssl_name(suite) for suite in older]
    for suite, name in zip(older, names, strict=True):
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise ValueError(f"{key}: {suite} is not known to OpenSSL") from None
    context.set_ciphers(":".join(names))


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite that Java names as the standard of TLS 1.2 does."""
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    return "-".join(part.replace("_", "-") for part in (exchange if exchange != "RSA" else "", cipher) if part)
