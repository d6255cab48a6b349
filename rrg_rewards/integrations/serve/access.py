"""Who may send requests to a reward server: holders of its token, and no web pages."""

import base64
import hmac
import ipaddress

from starlette.requests import Request

from rrg_rewards.integrations.serve.requests import RequestError


def check_access(request: Request, token: str | None) -> None:
    """Check that a request comes from a client that may use the server.

    A web page in a browser on this machine can send requests to any local port. It cannot keep the browser from adding
    ``Origin``, nor send JSON under its own media type without asking the server first. A page whose name is bound to
    this machine's address after it was loaded has its own name in ``Host``; it knows no token.

    Args:
        request: The request.
        token: Token of the server; ``None`` for none, which is possible on this machine only.

    Raises:
        RequestError: If the request comes from a web page or lacks the token, or its content is not declared as JSON.
    """
    if "origin" in request.headers:
        raise RequestError(403, "requests of web pages, which have the header Origin, are refused")
    if token is not None:
        _check_token(request.headers.get("authorization", ""), token)
    elif not _is_local_name(request.headers.get("host", "")):
        raise RequestError(
            403,
            "the header Host must be localhost or the number of an address, because the server has no token; for other "
            "names start it with the environment variable RRG_REWARDS_TOKEN",
        )
    if request.method == "POST" and not _is_json(request.headers.get("content-type", "")):
        raise RequestError(415, "the body must be JSON; send the header Content-Type: application/json")


def _check_token(authorization: str, token: str) -> None:
    """Accept ``Bearer TOKEN``, and ``Basic`` with the token as password, which clients send for ``http://x:TOKEN@…``."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("latin-1").partition(":")[2]
        except ValueError:
            value = ""
    if scheme.lower() not in ("basic", "bearer") or not hmac.compare_digest(value.encode(), token.encode()):
        raise RequestError(401, "the request lacks the server's token", {"WWW-Authenticate": "Bearer"})


def _is_local_name(host: str) -> bool:
    """Whether a ``Host`` is ``localhost`` or the number of an address, to which no name of a web page can be bound.

    Example:
        >>> [_is_local_name(host) for host in ("localhost:8787", "127.0.0.1:1", "[::1]:8787", "rebound.example:8787")]
        [True, True, True, False]
    """
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_json(content_type: str) -> bool:
    """Whether a media type is that of JSON.

    Example:
        >>> [_is_json(one) for one in ("application/json; charset=utf-8", "text/plain", "")]
        [True, False, False]
    """
    return content_type.partition(";")[0].strip().lower() == "application/json"
