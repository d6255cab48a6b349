"""Check a server's address: report text is sent only to this machine, unless the user allows another."""

import ipaddress
import re
from typing import NamedTuple

__all__ = ["Address", "check_address"]

# URL parsers disagree on other characters (user names, backslashes, blanks, other alphabets). They are refused, because
# the host that is checked here might otherwise differ from the host that is called.
_ADDRESS = re.compile(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?((?:/[A-Za-z0-9._~%-]*)*)")


class Address(NamedTuple):
    """A server's address.

    Attributes:
        url: The address, without a slash at the end.
        host: The host in lower case.
        is_loopback: Whether the host is this machine.
        is_encrypted: Whether the address uses HTTPS.
    """

    url: str
    host: str
    is_loopback: bool
    is_encrypted: bool


def check_address(base_url: str, allow_remote: bool = False, name: str = "base_url", key: str = "api_key") -> Address:
    """Parse a server's address, and reject other machines unless they are allowed.

    Loopback addresses are ``localhost``, ``127.0.0.0/8`` and ``::1``, in these spellings only.

    Args:
        base_url: Address such as ``http://localhost:8000/v1``.
        allow_remote: Whether the host may be another machine.
        name: Name of the argument in errors.
        key: Name of the argument that takes a key, in errors.

    Raises:
        ValueError: If the address is not a plain HTTP address, contains a user name or password, or is on another
            machine and ``allow_remote`` is false.

    Example:
        >>> check_address("http://localhost:8000/v1/").is_loopback
        True
        >>> check_address("http://localhost.example.org/v1")
        Traceback (most recent call last):
        ...
        ValueError: base_url is on another machine, 'localhost.example.org', ... pass allow_remote=True
    """
    match = _ADDRESS.fullmatch(base_url)
    if match is None or int(match[3] or 0) > 65535:
        # Do not repeat the address, which may contain a password.
        raise ValueError(
            f"{name} must be a plain address such as http://localhost:8000/v1: http or https, a host, a port and a "
            f"path, without user name, password, query or fragment; a key is passed as {key}"
        )
    host = match[2].strip("[]").lower()
    is_loopback = host == "localhost" or _is_loopback_number(host)
    if not is_loopback and not allow_remote:
        raise ValueError(
            f"{name} is on another machine, {host!r}, and report text would leave this one. Serve the model on "
            "localhost, or, if the reports may go there, pass allow_remote=True"
        )
    return Address(base_url.rstrip("/"), host, is_loopback, match[1] == "https")


def _is_loopback_number(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
