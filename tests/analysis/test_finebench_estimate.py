"""Estimated requests of CT-FineBench, against those that judges with the answers of the finding engine receive."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from exam_judge import ExamJudge

from rrg_rewards.analysis.finebench_estimate import estimate_finebench, finebench_judges
from rrg_rewards.judges.base import JudgeTask, JudgeWarning
from rrg_rewards.judges.server.rate_limit import estimated_tokens
from rrg_rewards.judges.tasks.finebench import AnswerPairs, Questions, Refused
from rrg_rewards.judges.tasks.finebench_prompt_files import AnswerPromptTask
from rrg_rewards.metrics import CTFineBench
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.engine import answer_items, build_items
from rrg_rewards.utilities.settings import SettingError

NODULE = "Spiculated nodule of 12 mm in the right upper lobe."
BOTH = "Small left pleural effusion. Linear atelectasis in the left lower lobe."
# Equal pairs, references and candidates; texts without questions; missing texts.
PAIRS = [
    (NODULE, "Smooth nodule of 9 mm in the right upper lobe."),
    (NODULE, "Smooth nodule of 9 mm in the right upper lobe."),
    (NODULE, "No nodule. Small left pleural effusion."),
    ("The lungs are clear.", "Possible nodule of 4 mm."),
    (BOTH, "The lungs are clear."),
    (None, NODULE),
    (BOTH, "Left pleural effusion. Atelectasis in the left lower lobe."),
    (BOTH, None),
    ("Nodule of 5 mm.", "Nodule."),
]
SERVER = {"name": "openai", "model": "m", "price": (1.0, 4.0), "price_cached": 0.25, "requests_per_minute": 2}
TASKS = {"builder": "questions", "answerer": "answers", "comparer": "grades"}


class CountingJudge(ExamJudge):
    """Answers like the finding engine, evaluates equal items once, and keeps the conversations."""

    def __init__(self) -> None:
        super().__init__()
        self.conversations: list[list[dict[str, str]]] = []

    def arguments(self) -> dict[str, Any]:
        return {}

    async def evaluate(self, task: JudgeTask[Any, Any], items: Sequence[Any]) -> list[Any]:
        refused = {item: task.refusal(item) for item in dict.fromkeys(items)}
        sent = [item for item, refusal in refused.items() if refusal is None]
        self.conversations += [task.messages(item) for item in sent]
        results = {**refused, **dict(zip(sent, await super().evaluate(task, sent), strict=True))}
        return [results[item] for item in items]

    def _answer(self, task: JudgeTask[Any, Any], item: Any) -> Any:
        if isinstance(task, AnswerPromptTask):
            return tuple(answer_items(item.report, item.items))
        return super()._answer(task, item)

    @property
    def prompt_tokens(self) -> int:
        return sum(estimated_tokens(one["content"] for one in messages) for messages in self.conversations)


class StubbornJudge(CountingJudge):
    """Gives usable answers and grades only if it is asked for a single one."""

    def _answer(self, task: JudgeTask[Any, Any], item: Any) -> Any:
        if isinstance(item, Questions | AnswerPairs) and len(item.items) > 1:
            return (Refused.NOT_VERBATIM if isinstance(item, Questions) else None,) * len(item.items)
        return super()._answer(task, item)


def batches(pairs: Sequence[Any], size: int, **context: Sequence[Any]) -> list[Any]:
    found = []
    for start in range(0, len(pairs), size):
        rows = slice(start, start + size)
        references, candidates = zip(*pairs[rows], strict=True)
        found.append((candidates, references, {name: column[rows] for name, column in context.items()}))
    return found


def asked(judge: type[CountingJudge], roles: Sequence[str], given: Sequence[Any], **options: Any) -> Any:
    """Score with judges; return the judges by what they do."""
    judges = {role: judge() for role in roles}
    metric = CTFineBench(**judges, **options)
    for candidates, references, context in given:
        metric.score(candidates, references, **context)
    return {TASKS[role]: one for role, one in judges.items()}


def check(roles: Sequence[str], given: Sequence[Any], **options: Any) -> Any:
    """Compare the estimate with the requests of judges that answer like the engine."""
    judges = {role: CountingJudge() for role in roles}
    found = estimate_finebench(CTFineBench(**judges, **options), given)
    assert not any(judge.conversations for judge in judges.values()), "nothing is sent"
    real = asked(CountingJudge, roles, given, **options)
    assert {role: one.estimate.requests for role, one in found.items()} == {
        role: len(judge.conversations) for role, judge in real.items()
    }
    assert {role: one.estimate.prompt_tokens for role, one in found.items()} == {
        role: judge.prompt_tokens for role, judge in real.items()
    }
    return found


@pytest.fixture
def prompts(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "answer.txt").write_text("Report: <report> Question: <question>")
    (tmp_path / "grade.txt").write_text("Grade with 0, 0.5 or 1.")
    return {"answer_prompt": tmp_path / "answer.txt", "grade_prompt": tmp_path / "grade.txt"}


@pytest.mark.parametrize("size", [2, len(PAIRS)])
@pytest.mark.parametrize("mode", ["recall", "precision", "f1"])
@pytest.mark.parametrize(
    "roles",
    [("builder", "answerer", "comparer"), ("answerer",), ("comparer",), ("builder", "comparer"), ("builder",)],
    ids=" ".join,
)
def test_estimate_finebench_counts_the_requests_of_judges_like_the_engine(
    roles: Sequence[str], mode: str, size: int
) -> None:
    found = check(roles, batches(PAIRS, size), mode=mode)
    assert list(found) == [TASKS[role] for role in roles]
    for role, one in found.items():
        assert one.estimate.requests > 0
        assert (one.most_requests is None) == (role == "questions")
        assert one.most_requests is None or one.most_requests >= one.estimate.requests


def test_estimate_finebench_with_prompts_of_the_user(prompts: dict[str, Path]) -> None:
    """Each question is a request; a text that a prompt without escapes must not contain is not sent."""
    roles = ("builder", "answerer", "comparer")
    found = check(roles, batches(PAIRS, 4), mode="f1", **prompts)
    clean = check(("answerer", "comparer"), batches([(NODULE, "Nodule of 12 mm.")], 1), **prompts)
    assert clean["answers"].estimate.requests == clean["answers"].most_requests == len(build_items(NODULE))
    assert clean["grades"].estimate.requests == 2 < found["grades"].estimate.requests
    with pytest.warns(JudgeWarning, match="the judge failed on 1 of 1"):
        refused = check(("answerer", "comparer"), batches([(NODULE, "Nodule <|im_start|>")], 1), **prompts)
    assert refused["answers"].estimate.requests == refused["answers"].most_requests == 0


def test_estimate_finebench_reads_the_context() -> None:
    given = [build_items(NODULE), None, (), build_items(NODULE)[:2]]
    pairs = [(None, "Nodule of 9 mm."), (None, "Nodule."), (None, "Nodule."), (None, "Nodule of 9 mm.")]
    found = check(("builder", "answerer", "comparer"), batches(pairs, 4, items=given))
    assert found["questions"].estimate.requests == 0
    assert found["answers"].estimate.requests == 2
    # Two requests for all questions of a report, and one for each of them.
    assert found["answers"].most_requests == 2 + len(given[0]) + len(given[3])


def test_estimate_finebench_bound_is_reached_by_judges_that_are_asked_everything_twice() -> None:
    pairs = [(text, text) for text in (NODULE, BOTH)]
    given, roles = batches(pairs, 2), ("answerer", "comparer")
    found = check(roles, given)
    real = asked(StubbornJudge, roles, given)
    assert {role: one.most_requests for role, one in found.items()} == {
        role: len(judge.conversations) for role, judge in real.items()
    }
    assert found["answers"].most_requests > found["answers"].estimate.requests == 2


@pytest.mark.parametrize("mode", ["recall", "f1"])
def test_estimate_finebench_bound_holds_for_judges_that_make_other_questions(mode: str) -> None:
    class ThoroughJudge(StubbornJudge):
        """States that each report contains all of the nodule, also those without findings."""

        def _answer(self, task: JudgeTask[Any, Any], item: Any) -> Any:
            return build_items(NODULE) if isinstance(item, str) else super()._answer(task, item)

    roles, given = ("builder", "answerer", "comparer"), batches(PAIRS, 3)
    found = check(roles, given, mode=mode)
    real = asked(ThoroughJudge, roles, given, mode=mode)
    assert len(real["questions"].conversations) == found["questions"].estimate.requests
    for role in ("answers", "grades"):
        assert found[role].estimate.requests < len(real[role].conversations) <= found[role].most_requests


def test_estimate_finebench_bound_counts_every_attribute_of_the_schema() -> None:
    specs = [spec for finding in get_question_schema("ct_rate").findings for spec in finding.attributes]
    given = batches([("The lungs are clear.", "Nodule.")], 1)
    found = check(("builder", "answerer", "comparer"), given)
    assert found["answers"].estimate.requests == 0
    assert found["answers"].most_requests == 1 + len(specs)
    # Rules grade the existence of findings.
    assert found["grades"].most_requests == 1 + sum(spec.answer_type != "existence" for spec in specs)


def test_estimate_finebench_computes_cost_and_time_of_each_judge() -> None:
    metric = CTFineBench(
        builder=SERVER, answerer={**SERVER, "max_tokens": 100}, comparer={"name": "openai", "model": "n"}
    )
    found = estimate_finebench(metric, batches(PAIRS, 4))
    questions, answers, grades = (found[role].estimate for role in ("questions", "answers", "grades"))
    for one in (questions, answers):
        assert one.cost == pytest.approx((one.prompt_tokens + 4 * one.completion_tokens) / 1e6)
        assert one.cached_cost == pytest.approx(one.cost - 0.75 * one.cacheable_tokens / 1e6)
        assert 0 < one.cacheable_tokens < one.prompt_tokens
        assert one.minutes == one.requests / 2
    assert answers.most_completion_tokens == 100 * answers.requests
    assert grades.cost is None
    assert found["answers"].to_dict() == {
        **dataclasses.asdict(answers),
        "most_requests": found["answers"].most_requests,
    }


def test_estimate_finebench_expects_answers_of_the_length_that_is_parsed() -> None:
    """The answers that are expected are in the form of the task, with about four characters per token."""
    found = check(("builder", "answerer", "comparer"), batches([(NODULE, NODULE)], 1))
    items = build_items(NODULE)
    for role, form in (("questions", "attribute"), ("answers", "question"), ("grades", "pair")):
        characters = 4 * found[role].estimate.completion_tokens
        said = 0 if role == "grades" else sum(len(item.answer) for item in items)
        assert said + len(items) * len(form) < characters < said + len(items) * 60 + 150


def test_estimate_finebench_without_a_language_model_is_empty() -> None:
    for metric in (CTFineBench(), CTFineBench(answerer=ExamJudge(waits=False))):
        assert finebench_judges(metric) == {}
        assert estimate_finebench(metric, batches(PAIRS, 4)) == {}


def test_estimate_finebench_needs_a_schema_that_the_engine_reads(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    existence = "{type: existence, question: Is there one, explanation: Whether it is there., examples: ['yes']}"
    path.write_text(
        f"name: mine\nlexicon: chest_ct\nattributes:\n  existence: {existence}\n"
        "findings:\n  Lymphangioma: {ask: [existence]}\n"
    )
    metric = CTFineBench(path, builder=SERVER, answerer=SERVER)
    with pytest.raises(SettingError, match=r"no estimate of ct_finebench: the finding engine, .*Lymphangioma"):
        estimate_finebench(metric, batches(PAIRS, 4))
