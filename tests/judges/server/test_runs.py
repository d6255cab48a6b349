"""Runs of OpenAIJudge: other seeds, entries of their own in the cache, shared limits and counters."""

from pathlib import Path

from fault_server import FaultServer
from tiny_task import LengthTask

from rrg_rewards.judges import OpenAIJudge


def test_each_run_is_requested_and_cached_apart(tmp_path: Path) -> None:
    with FaultServer() as server:
        judge = OpenAIJudge("m", base_url=server.url, temperature=0.7, cache=tmp_path / "cache", seed=3)
        for _ in range(2):
            for run in range(3):
                judge.rerun(run).evaluate_now(LengthTask(), ["a", "b"])
        assert sorted((request.item, request.body["seed"]) for request in server.requests) == [
            (item, seed) for item in "ab" for seed in (3, 1003, 2003)
        ]
        assert (judge.usage.calls, judge.usage.cached) == (6, 6)
        assert judge.rerun(2).usage == judge.usage
        # A judge without runs finds the answers of the first run.
        other = OpenAIJudge("m", base_url=server.url, temperature=0.7, cache=tmp_path / "cache", seed=3)
        other.evaluate_now(LengthTask(), ["a", "b"])
        assert (other.usage.calls, other.usage.cached) == (0, 2)


def test_stopping_a_judge_stops_its_runs() -> None:
    with FaultServer() as server:
        judge = OpenAIJudge("m", base_url=server.url, temperature=None)
        second = judge.rerun(1)
        judge.stop()
        second.evaluate_now(LengthTask(), ["a"])
        assert server.requests == []


def test_signatures_tell_runs_apart() -> None:
    judge = OpenAIJudge("m", temperature=1.0)
    assert "run" not in judge.signature
    assert "|run:2|" in judge.rerun(2).signature
    assert judge.rerun(0) is judge
