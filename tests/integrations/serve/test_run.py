"""``rrg-rewards serve`` in processes of its own: signals, workers that are killed, and metrics of all workers."""

import asyncio
import contextlib
import gc
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from served import LengthReward, Served, sent

from rrg_rewards.data import phantom_studies
from rrg_rewards.integrations.serve import run
from rrg_rewards.integrations.serve.run import bind
from rrg_rewards.integrations.serve.settings import ServerOptions
from rrg_rewards.rewards import RemoteReward, make_reward

GUARD = 240
HELPERS = Path(__file__).resolve().parents[2] / "helpers"


@contextlib.contextmanager
def serving(*arguments, num_workers=1):
    """The process and the address of a server that is ready; killed at the end if it still runs."""
    command = [sys.executable, "-m", "rrg_rewards", "serve", "--port", "0", "--workers", str(num_workers), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HELPERS)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stderr.readline()
        address = re.search(r"at (http://127\.0\.0\.1:\d+)$", line)
        assert address, line + process.stderr.read()
        until(lambda: answers(address[1]), process)
        yield process, address[1]
    finally:
        for one in (*psutil.Process(process.pid).children(recursive=True), process) if process.poll() is None else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.stderr.close()
        process.wait(GUARD)


def until(condition, process=None):
    end = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < end
        assert process is None or process.poll() is None
        time.sleep(0.05)


def answers(url):
    try:
        return fetch(url + "/health") == b'{"status":"ok"}'
    except OSError:
        return False


def fetch(url, body=None):
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=GUARD) as reply:
        return reply.read()


def workers(process):
    """The processes that serve. Python's resource tracker is another child."""
    found = []
    for one in psutil.Process(process.pid).children():
        # A worker that was killed is a child until the supervisor has waited for it.
        with contextlib.suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(one.cmdline()):
                found.append(one)
    return found


@pytest.mark.slow
def test_run_server_loses_no_reward_if_a_worker_is_killed():
    studies = phantom_studies(301)
    completions = [study.report for study in studies[1:]]
    references = [study.report for study in studies[:-1]]
    with serving("--reward", "crg", "--set", "prior=0.2", num_workers=2) as (process, url):
        until(lambda: len(workers(process)) == 2, process)
        reward = RemoteReward(url, batch_size=1, concurrency=8, max_retries=20)

        async def main():
            scoring = asyncio.ensure_future(reward(completions, reference=references))
            await asyncio.sleep(0.1)
            killed = workers(process)[0].pid
            os.kill(killed, signal.SIGKILL)
            return killed, await scoring

        killed, rewards = asyncio.run(main())
        assert rewards == make_reward("crg", prior=0.2)(completions, reference=references)
        until(lambda: len(now := workers(process)) == 2 and killed not in [one.pid for one in now], process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(GUARD) == 0


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_run_server_finishes_running_requests_on_sigterm(tmp_path, num_workers):
    arguments = ("--reward", "gated_reward:GatedReward", "--set", f"folder={tmp_path}")
    with serving(*arguments, num_workers=num_workers) as (process, url), ThreadPoolExecutor(1) as threads:
        running = threads.submit(fetch, url + "/rewards", {"completions": ["hold", "a b c"]})
        until((tmp_path / "entered").exists, process)
        process.send_signal(signal.SIGTERM)
        until(lambda: not answers(url), process)
        assert not running.done()
        (tmp_path / "go").touch()
        assert json.loads(running.result())["rewards"] == [1.0, 3.0]
        assert process.wait(GUARD) == 0
        assert process.stderr.read() == ""


@pytest.mark.slow
def test_run_server_counts_for_all_workers_which_end_with_their_supervisor(tmp_path):
    arguments = ("--reward", "gated_reward:GatedReward", "--set", f"folder={tmp_path}")
    with serving(*arguments, num_workers=2) as (process, url):
        until(lambda: len(workers(process)) == 2, process)
        for _ in range(20):
            fetch(url + "/rewards", {"completions": ["a", "b"]})
        text = fetch(url + "/metrics").decode()
        started = workers(process)
        process.kill()
        assert not psutil.wait_procs(started, GUARD)[1]
    assert 'rrg_rewards_requests_total{path="/rewards",status="200"} 20.0' in text
    assert 'rrg_rewards_completions_total{outcome="scored"} 40.0' in text


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_run_server_ends_if_the_reward_cannot_start(tmp_path, num_workers):
    command = ["serve", "--port", "0", "--reward", "gated_reward:BrokenReward", "--workers", str(num_workers)]
    done = subprocess.run(
        [sys.executable, "-m", "rrg_rewards", *command, "--set", f"folder={tmp_path}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HELPERS)},
        timeout=GUARD,
    )
    assert done.returncode == 1
    assert "the reward 'gated' cannot start: OSError: no model in process" in done.stderr
    assert "Traceback" not in done.stderr


def test_make_app_keeps_the_garbage_collector_from_what_the_start_has_made():
    try:
        run._make_app(ServerOptions(LengthReward()))
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


def test_bind_makes_connections_that_send_the_end_of_a_reply_at_once():
    with Served() as served, sent(served, b""):
        connections = served.server.server_state.connections
        until(lambda: connections)
        (connection,) = connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    with bind("127.0.0.1", 0, None, 2) as listener, pickle.loads(pickle.dumps(listener)) as copy:
        assert listener.proto == copy.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("others", [1, 2])
def test_bind_refuses_the_address_of_another_server(num_workers, others):
    with bind("127.0.0.1", 0, None, num_workers) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", port, None, others)
        if num_workers > 1:
            with pickle.loads(pickle.dumps(listener)) as copy:
                copy.listen()
                assert copy.getsockname() == listener.getsockname()
