"""`kbroker health --admin URL`: what a broker says of itself on its admin port, at /readyz.

With https the certificate must be issued by the trust store of `--command-config`, or else by an
authority that the machine trusts, and be for the name in the URL. So a command sees the
certificates of all listeners of that broker, of which it connects to one at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from kbroker.cli.connect import command_config
from kbroker.errors import UsageError, UserError
from kbroker.findings.certificates import expiry
from kbroker.findings.checks import FAILING, OK, Check
from kbroker.outside_text import printable

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection

_PATH: Final = "/readyz?verbose"
_READY: Final = (200, 503)
_PAGE_BYTES_MAX: Final = 256 * 1024
_LINE: Final = re.compile(r"\[([+-])\] (.{1,500}?): (.{1,2000})")
_CERTIFICATE: Final = re.compile(r"certificate (.+)")
_DAYS: Final = re.compile(r"expires in (\d{1,7}(?:\.\d)?) days")
_DAY_S: Final = 86_400
_TRUST: Final = (
    "name its issuer in --command-config (ssl.truststore.location), and a host of the certificate"
)
_FIX: Final = "start the broker, or name the address of its admin.listeners"


def check_url(url: str) -> None:
    """UsageError: it is no http://HOST:PORT or https://HOST:PORT."""
    try:
        parts = urlsplit(url)
        is_one = bool(parts.hostname) and parts.port is not None
    except ValueError:
        parts, is_one = urlsplit(""), False
    is_one = is_one and "@" not in parts.netloc and parts.path in ("", "/")
    if parts.scheme not in ("http", "https") or not is_one:
        raise UsageError(f"--admin {url!r} is no address", "write https://HOST:PORT")


def readiness(url: str, timeout_ms: int) -> Iterator[Check]:
    """A line for the broker, one for each condition that it fails, one for each certificate."""
    try:
        status, page = ask(url, _PATH, timeout_ms)
    except UserError as error:
        yield Check(FAILING, "admin", error.cause, error.fix)
        return
    if status not in _READY:
        yield Check(FAILING, "admin", f"{url} answers {status}", _FIX)
        return
    yield from _read(url, page, is_ready=status == _READY[0])


def _read(url: str, page: str, *, is_ready: bool) -> Iterator[Check]:
    found = [match.groups() for match in map(_LINE.fullmatch, page.splitlines()) if match]
    if is_ready:
        yield Check(OK, "admin", f"{url} is ready")
    for sign, name, detail in found:
        certificate = _CERTIFICATE.fullmatch(name)
        if certificate is not None:
            yield _certificate(url, certificate[1], detail)
        elif sign == "-":
            seen = f"{url}: {printable(name)}: {printable(detail)}"
            yield Check(FAILING, "admin", seen, "see the broker's log")
    if not is_ready and not any(sign == "-" for sign, _, _ in found):
        yield Check(FAILING, "admin", f"{url} is not ready", "see the broker's log")


def _certificate(url: str, listener: str, detail: str) -> Check:
    days = _DAYS.fullmatch(detail)
    seen = f"{url}: the certificate of {printable(listener)}"
    return expiry("certificate", seen, float(days[1]) * _DAY_S if days is not None else 0.0)


def ask(url: str, path: str, timeout_ms: int) -> tuple[int, str]:
    """Status and page. UserError: there is no answer."""
    try:
        return _ask(urlsplit(url), path, timeout_ms / 1000)
    except (OSError, ValueError) as error:
        why = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or str(error)
        fix = _TRUST if hasattr(error, "verify_message") else _FIX
        raise UserError(f"{url}: {printable(why or type(error).__name__)}", fix) from None


def _ask(url: SplitResult, path: str, timeout_s: float) -> tuple[int, str]:
    """Status and page. OSError, ValueError."""
    from http.client import HTTPException

    asked = _connection(url, timeout_s)
    try:
        asked.request("GET", path, headers={"Connection": "close"})
        with asked.getresponse() as response:
            page = response.read(_PAGE_BYTES_MAX + 1)
            if len(page) > _PAGE_BYTES_MAX:
                raise ValueError("its page is too long")
            return response.status, page.decode(errors="replace")
    except HTTPException as error:
        raise ValueError(f"it does not speak {url.scheme}: {error!r}") from None
    finally:
        asked.close()


def _connection(url: SplitResult, timeout_s: float) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    host, port = url.hostname or "", url.port
    if url.scheme == "http":
        return HTTPConnection(host, port, timeout=timeout_s)
    return HTTPSConnection(host, port, timeout=timeout_s, context=_context())


def _context() -> ssl.SSLContext:
    file = command_config()
    if file is None:
        from ssl import create_default_context

        return create_default_context()
    from kbroker.cli.command_config import tls_of_file

    return tls_of_file(file).context
