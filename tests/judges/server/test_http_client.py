"""Addresses that report text may be sent to."""

import pytest

from rrg_rewards.judges.server.http_client import check_address


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "http://LOCALHOST/v1/",
        "https://localhost",
        "http://127.0.0.1:1/v1",
        "http://127.255.3.4",
        "http://[::1]:8000/v1",
    ],
)
def test_loopback(url):
    address = check_address(url)
    assert address.is_loopback
    assert not address.url.endswith("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost.evil.com/v1",
        "http://evil.com/localhost",
        "https://api.openai.com/v1",
        "http://127.0.0.1.evil.com",
        "http://127.0.0.1.:80",
        "http://0.0.0.0:8000",
        "http://[::2]/v1",
        "http://10.0.0.7/v1",
        "http://2130706433/v1",
        "http://127.1/v1",
    ],
)
def test_other_machines_need_leave(url):
    with pytest.raises(ValueError, match=r"base_url is on another machine, .*allow_remote=True"):
        check_address(url)
    assert not check_address(url, allow_remote=True).is_loopback


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1@evil.com/v1",
        "http://user:secret@localhost/v1",
        "http://evil.com\\@localhost/v1",
        "http://localhost\\.evil.com/v1",
        "http://localhost#@evil.com/",
        "http://localhost?@evil.com/",
        "http://localhost:80:90/v1",
        "http://localhost:99999/v1",
        "http://local\thost/v1",
        " http://localhost/v1",
        "http://localhost/v1\n",
        "http://ⓛocalhost/v1",
        "http://localhost。evil.com/v1",
        "ftp://localhost/v1",
        "localhost:8000/v1",
        "//localhost/v1",
        "unix:///run/model.sock",
        "",
    ],
)
@pytest.mark.parametrize("allow_remote", [False, True])
def test_ambiguous_addresses_are_refused(url, allow_remote):
    with pytest.raises(ValueError, match="base_url must be a plain address") as error:
        check_address(url, allow_remote)
    assert "secret" not in str(error.value)
