"""Inspect AI evaluates a model that returns the reports of the tests."""

import math
from pathlib import Path
from typing import Any

import pytest
from trainer_inputs import REFERENCES, REPORTS, REWARD

from rrg_rewards.rewards import make_reward

pytestmark = pytest.mark.trainers


@pytest.fixture
def inspect_ai() -> Any:
    return pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")


def evaluate(inspect_ai: Any, folder: Path, completions: list[str], samples: list[Any], **settings: Any) -> Any:
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    from rrg_rewards.integrations.inspect_ai import report_scorer

    @solver
    def written() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.output = ModelOutput.from_content("none", completions[int(state.sample_id) - 1])
            return state

        return solve

    task = inspect_ai.Task(dataset=samples, solver=written(), scorer=report_scorer(**settings))
    (log,) = inspect_ai.eval(task, model="none/none", log_dir=str(folder), display="none")
    return log


def test_inspect_ai_reports_the_rewards_of_the_reward_itself(
    inspect_ai: Any, tmp_path: Path, expected: list[float | None]
) -> None:
    from inspect_ai.dataset import Sample

    samples = [Sample(input="Report.", target=reference or "") for reference in REFERENCES]
    log = evaluate(inspect_ai, tmp_path, [f"<think>?</think>{text}" for text in REPORTS], samples, reward=REWARD)
    assert log.status == "success"
    scores = [sample.scores["report_scorer"] for sample in log.samples]
    assert [None if math.isnan(one.value) else one.value for one in scores] == pytest.approx(expected)
    assert [one.metadata["scorable"] for one in scores] == [True, True, False, True]
    assert scores[0].metadata["recall"] == 0.5
    known = [value for value in expected if value is not None]
    (result,) = log.results.scores
    assert result.metrics["mean"].value == pytest.approx(math.fsum(known) / len(known))
    assert (result.scored_samples, result.unscored_samples) == (3, 1)


def test_inspect_ai_passes_metadata_as_columns_and_scores_a_log_again(inspect_ai: Any, tmp_path: Path) -> None:
    from inspect_ai.dataset import Sample

    from rrg_rewards.integrations.inspect_ai import report_scorer

    target = "Edema. Aortic calcification."
    samples = [Sample(input="Report.", target=target, metadata={"age": age}) for age in (30, 85)]
    settings = {"reward": {"name": "crimson", "age_column": "age"}}
    log = evaluate(inspect_ai, tmp_path, ["Edema."] * 2, samples, **settings)
    young, old = (sample.scores["report_scorer"].value for sample in log.samples)
    direct = make_reward("crimson", age_column="age")(["Edema."] * 2, reference=[target] * 2, age=[30, 85])
    assert [young, old] == pytest.approx(direct)
    assert young < old
    again = inspect_ai.score(log, report_scorer(reward="rouge"), action="overwrite", display="none")
    (rouge, _) = (sample.scores["report_scorer"].value for sample in again.samples)
    assert rouge == pytest.approx(make_reward("rouge")(["Edema."], reference=[target])[0])
