"""Addresses that report text may be sent to, and limits of replies."""

import gzip

import pytest
from fault_server import (
    ITEMS,
    FaultServer,
    evaluate,
    kinds,
    make_judge,
    raw,
    reply_bytes,
    says,
    status,
)
from tiny_task import good_answer

from rrg_rewards.judges import OpenAIJudge
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
def test_check_address_recognises_loopback(url):
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
def test_check_address_rejects_other_machines_unless_allowed(url):
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
def test_check_address_rejects_ambiguous_addresses(url, allow_remote):
    with pytest.raises(ValueError, match="base_url must be a plain address") as error:
        check_address(url, allow_remote)
    assert "secret" not in str(error.value)


def test_http_client_limits_replies(monkeypatch):
    monkeypatch.setattr("rrg_rewards.judges.server.client._MOST_BYTES", 1000)
    bomb = reply_bytes(gzip.compress(b" " * 10**6), Content_Encoding="gzip")
    script = {
        "a": [says("x" * 1001)],
        "bb": [status(500, {"error": {"message": "x" * 1001}})],
        "ccc": [raw(bomb)],
        "dddd": [says(" " * 500 + good_answer("dddd"))],
    }
    with FaultServer(script) as server:
        results = evaluate(make_judge(server), ITEMS)
        assert server.asked == dict.fromkeys(ITEMS, 1)
    assert kinds(results) == ["status", "status", "status", 4]
    assert results[0].reason == results[1].reason == "the server's reply is longer than 1000 bytes"
    assert results[2].reason == "the server compressed its reply, although it was asked not to"
    assert server.requests[0].headers["accept-encoding"] == "identity"


def test_http_client_does_not_follow_redirects():
    with FaultServer() as other, FaultServer(otherwise=status(307, Location=f"{other.url}/x")) as server:
        assert kinds(evaluate(make_judge(server), ITEMS)) == ["status"] * 4
    assert other.requests == []


def test_http_client_does_not_use_proxies_of_the_environment(monkeypatch):
    with FaultServer() as proxy, FaultServer() as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.lower(), f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert evaluate(make_judge(server), ["a"]) == [1]
        assert evaluate(make_judge(server, allow_remote=True), ["a"]) == [1]
        assert proxy.connections == 0


def test_remote_addresses_of_openai_judge_must_be_allowed():
    with pytest.raises(ValueError, match="report text would leave this one"):
        OpenAIJudge("m", base_url="http://localhost.evil.com/v1")
    judge = OpenAIJudge("m", base_url="https://api.example.org/v1", allow_remote=True)
    assert "|host:api.example.org|" in judge.signature
