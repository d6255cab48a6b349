"""The task set of verifiers, evaluated by verifiers itself with a policy behind an OpenAI-compatible server."""

import importlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rrg_rewards.integrations.common import scoring
from rrg_rewards.recipes.environments.studies import PHANTOM_SETTINGS, study_tasks
from rrg_rewards.rewards import make_reward

pytestmark = pytest.mark.trainers

PROJECT = Path(__file__).parents[3] / "recipes" / "environments" / "verifiers"
# verifiers' own harnesses install their requirements with uv.
HARNESS = """
import httpx
import verifiers.v1 as vf

__all__ = ["OneReplyHarness"]


class OneReplyHarness(vf.Harness[vf.HarnessConfig]):
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        async with httpx.AsyncClient(trust_env=False) as client:
            headers = {"Authorization": f"Bearer {secret}"}
            (await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)).raise_for_status()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
"""


class CopyingPolicy(BaseHTTPRequestHandler):
    """Replies with the findings of the prompt."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": findings_of(body["messages"][-1]["content"])}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy", "choices": [choice]}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


def findings_of(prompt: str) -> str:
    return prompt.partition("Findings: ")[2]


@pytest.fixture
def policy_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), CopyingPolicy) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("settings", [PHANTOM_SETTINGS, {**PHANTOM_SETTINGS, "reward": {"name": "crg", "prior": 0.4}}])
def test_verifiers_rewards_its_rollouts(
    settings: dict[str, Any], policy_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = pytest.importorskip("verifiers.v1.cli.eval.main", reason="verifiers is not installed", exc_type=ImportError)
    monkeypatch.setattr(scoring, "_REWARDS", {})
    monkeypatch.syspath_prepend(PROJECT)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_reply.py").write_text(HARNESS)
    importlib.invalidate_caches()
    run = {
        "model": "policy",
        "client": {"base_url": policy_url, "api_key_var": "NO_KEY"},
        "env": {
            "taskset": {"id": "rrg-impression", "num_studies": 6, "task": {"settings": dict(settings)}},
            "agent": {"harness": {"id": "one-reply"}, "runtime": {"type": "subprocess"}},
        },
        "output_dir": str(tmp_path),
        "run": {"dir": "run"},
        "push": False,
        "rich": None,
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    main.main(["@", str(tmp_path / "run.json")])
    lines = (tmp_path / "run" / "traces.jsonl").read_text().splitlines()
    traces = {trace["task"]["data"]["idx"]: trace for line in lines for trace in json.loads(line)["traces"]}
    tasks = study_tasks(settings, num_studies=6)
    reward = make_reward("crg", prior=settings["reward"]["prior"], reference_column="impression")
    rewards = reward(
        [findings_of(task.prompt) for task in tasks], impression=[task.columns["impression"] for task in tasks]
    )
    assert [traces[row]["rewards"]["report"]["score"] for row in range(6)] == pytest.approx(rewards)
    assert len(set(rewards)) > 1
    assert all(trace["metrics"]["scorable"] == 1 for trace in traces.values())
