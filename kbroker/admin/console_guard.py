"""Which requests the console answers, and the headers of every answer.

The console is for a browser, and a browser also runs what other sites send it. So a request must
name this machine (DNS rebinding, as `admin/hosts.py` explains; here at every address), and must
come from the console itself: one that another site's page makes is refused, but for a link that a
person follows. What changes something is a POST of the same origin, by `Sec-Fetch-Site` or, of
browsers without it, by `Origin`. No token is needed then (Go 1.25 and Datasette do the same).

`Visit.is_local`: the visitor is on this machine. A proxy here that forwards for others is known
by its headers, or by HTTP/1.0; a name of `admin.console.hosts` is one that others use.

Pure. RFC 9110 7.2, RFC 6454 7, W3C Fetch Metadata, CSP level 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from kbroker.admin.hosts import is_allowed, is_from_here, is_loopback

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

ENABLE: Final = "admin.console.enable"
HOSTS: Final = "admin.console.hosts"
MESSAGES: Final = "admin.console.messages"

HEADERS: Final = (
    ("Content-Security-Policy",
     "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
     "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Cache-Control", "no-store"),
    ("Vary", "Cookie"),
)  # fmt: skip

_SAFE_METHODS: Final = ("GET", "HEAD")
_OWN_SITES: Final = ("same-origin", "none")
_LOOPBACK: Final = "127.0.0.1"
_CHUNKED: Final = "transfer-encoding"


class Visit(NamedTuple):
    """A request as far as the guard looks at it. `headers`: the first value of each, by its name in
    small letters. `local` and `peer`: addresses of the connection."""

    method: str
    headers: Mapping[str, str]
    local: str
    peer: str
    http_version: str

    def named(self, hosts: Sequence[str]) -> bool:
        """Whether it asks for one of these names."""
        return _name_of(self.headers.get("host", "")) in [each.lower() for each in hosts]

    def is_local(self, config: BrokerConfig) -> bool:
        return (
            is_from_here(self.local, self.http_version, (name.encode() for name in self.headers))
            and is_loopback(self.peer)
            and not self.named(config[HOSTS])
        )


class Refusal(NamedTuple):
    status: int
    what: str
    next_step: str


def refusal_of(visit: Visit, config: BrokerConfig) -> Refusal | None:
    """None: it is answered."""
    host, enabled = visit.headers.get("host"), config[ENABLE].lower()
    named = visit.named(config[HOSTS])
    if host is None or not (named or is_allowed(_LOOPBACK, host)):
        return Refusal(
            421, "this is not the host that you named",
            f"ask by an address or as localhost, or add the name to {HOSTS}",
        )  # fmt: skip
    if enabled == "false":
        return Refusal(404, "there is no console", f"set {ENABLE} to auto or true")
    if enabled == "auto" and not (named or visit.is_local(config)):
        return Refusal(
            403, "the console is for visitors of this machine",
            f"set {ENABLE}=true, or add the name that you ask for to {HOSTS}",
        )  # fmt: skip
    has_body = visit.headers.get("content-length", "").strip("0") or _CHUNKED in visit.headers
    if has_body and visit.method != "POST":
        return Refusal(413, "no bodies here", "send a form with POST")
    site = visit.headers.get("sec-fetch-site", "")
    if visit.method in _SAFE_METHODS:
        followed = visit.headers.get("sec-fetch-mode", "") == "navigate"
        framed = visit.headers.get("sec-fetch-dest", "document") != "document"
        if site and site not in _OWN_SITES and (not followed or framed):
            return Refusal(403, "another site's page asks for this", "open the console itself")
        return None
    if not _is_same_origin(site, visit.headers):
        return Refusal(
            403, "another site's page sends this",
            "send it from the console's own page; a proxy has to leave Origin and Host as they are",
        )  # fmt: skip
    return None


def messages_of(config: BrokerConfig, *, is_local: bool) -> str:
    """on, keys or off."""
    said: str = config[MESSAGES].lower()
    if said == "auto":
        return "on" if is_local else "off"
    return said


def _is_same_origin(site: str, headers: Mapping[str, str]) -> bool:
    if site:
        return site in _OWN_SITES
    origin, host = headers.get("origin", ""), headers.get("host", "")
    try:
        authority = urlsplit(origin).netloc
    except ValueError:
        return False
    # Neither is sent by a program that is no browser: it has no cookie of another one's either.
    return not origin or (bool(authority) and authority.lower() == host.lower())


def _name_of(host: str) -> str:
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower().rstrip(".")
