"""CRIMSON's evaluations by a judge: evaluations in a file, and comparison of judges."""

import json

import pytest
from answering_judge import AnsweringJudge
from judge_answers import make_answer
from run_notes import RunNotes
from scripted_judge import ScriptedJudge, evaluate_words

from rrg_rewards.analysis import (
    EvaluationRun,
    EvaluationSettings,
    compare_judge,
    label_pairs,
    read_sourced_pairs,
)
from rrg_rewards.analysis.evaluating import estimate_crimson
from rrg_rewards.data.tables.table import Table, TableError
from rrg_rewards.judges import ReportPair, RuleJudge
from rrg_rewards.judges.evaluations import EvaluatedPair, read_evaluations
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

PAIRS = [
    ReportPair("Large left effusion.", "Small left effusion."),
    ReportPair("Clear lungs.", "Clear."),
    ReportPair("Cardiomegaly.", "Normal chest."),
]


@pytest.fixture
def output(tmp_path):
    return tmp_path / "evaluations.jsonl"


def test_evaluations_are_appended_with_their_source(output):
    run = label_pairs({PAIRS[0]: "a", PAIRS[1]: "b"}, "rules", output)
    rows = read_evaluations(output)
    assert [row.pair for row in rows] == PAIRS[:2]
    assert [row.source for row in rows] == ["a", "b"]
    assert rows[0].evaluation == RuleJudge().evaluation(PAIRS[0])
    assert (run.prompt, run.to_dict()["written"], run.to_dict()["held"]) == ("", 2, 0)
    again = label_pairs(PAIRS, RuleJudge(), output)
    assert (again.num_held, again.written, again.exit_code) == (2, 1, 0)


def test_an_interrupted_labelling_keeps_its_evaluations(output):
    def press_at_two():
        if output.read_text().count("\n") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        label_pairs(PAIRS, "rules", output, log=RunNotes(press_at_two))
    assert [row.pair for row in read_evaluations(output)] == PAIRS[:2]
    assert label_pairs(PAIRS, "rules", output).written == 1


def test_another_judge_or_prompt_evaluates_again(output):
    answer = json.dumps(make_answer())
    label_pairs(PAIRS[1:2], "rules", output)
    judge = AnsweringJudge(lambda pair: answer)
    with pytest.warns(RunWarning, match="evaluations of another judge or prompt: rules"):
        own = label_pairs(PAIRS[1:2], judge, output)
    with pytest.warns(RunWarning, match="another judge or prompt"):
        guided = label_pairs(PAIRS[1:2], judge, output, EvaluationSettings(prompt="guidelines"))
    assert (own.written, guided.written) == (1, 1)
    assert [row.prompt.partition("@")[0] for row in read_evaluations(output)] == ["", "own", "guidelines"]
    assert EvaluationRun(PAIRS[1:2], output, judge).num_held == 1


def test_other_checks_evaluate_again_and_are_recorded(output):
    # No finding of a report with one: strict checks reject it.
    judge = AnsweringJudge(lambda pair: json.dumps(make_answer(false="P9")))
    with pytest.warns(RunWarning, match="1 failed with inconsistent"):
        strict = label_pairs(PAIRS[:1], judge, output)
    assert strict.to_dict()["failures"] == {"inconsistent": 1}
    published = label_pairs(PAIRS[:1], judge, output, EvaluationSettings(checks="published"))
    (row,) = read_evaluations(output)
    assert (published.written, row.checks, row.evaluation.false_findings) == (1, "published", ("P9",))
    assert EvaluationRun(PAIRS[:1], output, judge).num_held == 0
    compared = compare_judge([row], judge, checks="published")
    assert (compared.valid, compared.checks, compared.agreement["errors"]["equal"]) == (1, "published", 1)


def test_an_estimate_of_evaluations(output):
    found = EvaluationRun(PAIRS, output, AnsweringJudge(str)).estimate()
    assert (found.requests, found.cost) == (3, None)


def test_estimate_crimson_counts_distinct_pairs_in_all_runs():
    judge = {"name": "openai", "model": "m", "price": (0.0, 1.0)}
    metric = CRIMSON(judge=judge, runs=3)
    pairs = metric.queries(["Clear.", "Clear.", None, "Normal."], ["Small effusion."] * 2 + ["Edema.", "Edema."])
    assert len(pairs) == 3
    found = estimate_crimson(metric, pairs)
    assert (found.requests, found.most_completion_tokens) == (6, 6 * 2048)
    answers = [metric.task.answer(RuleJudge().evaluation(pair)) for pair in dict.fromkeys(pairs)]
    assert found.completion_tokens == pytest.approx(3 * sum(map(len, answers)) / 4, rel=0.1)


def test_a_file_of_other_content_is_refused(output):
    output.write_text('{"reference": "a"}\n')
    with pytest.raises(TableError, match="is not an output of rrg-rewards judge label"):
        label_pairs(PAIRS, "rules", output)


def test_pairs_of_a_table_have_context_and_source():
    table = Table(
        {
            "gt": ["Edema.", " ", "Clear."],
            "text": ["Clear.", "Clear.", None],
            "years": ["82", "", ""],
            "origin": ["a", "b", None],
        }
    )
    settings = EvaluationSettings(
        reference_column="gt", candidate_column="text", source_column="origin", context={"age": "years"}
    )
    with pytest.warns(RunWarning, match="2 of 3 pairs lack a candidate or a reference"):
        pairs, unscorable = read_sourced_pairs(table, settings)
    assert (pairs, unscorable) == ({ReportPair("Edema.", "Clear.", (("age", "82"),)): "a"}, 2)
    with pytest.raises(SettingError, match="context: crimson takes no column weight"):
        read_sourced_pairs(
            Table({"reference": ["a"], "candidate": ["b"], "w": [1]}), EvaluationSettings(context={"weight": "w"})
        )


def test_a_judge_agrees_with_itself_and_its_failures_are_counted():
    words = [ReportPair(one, other) for one in ("left effusion", "edema") for other in ("effusion", "edema", "scar")]
    evaluations = [EvaluatedPair(pair, evaluate_words(pair), "words") for pair in words]
    found = compare_judge(evaluations, ScriptedJudge())
    assert found.agreement["score"]["tau"] == pytest.approx(1)
    assert (found.valid, found.teachers, found.prompt) == (6, ["words"], "")
    found = compare_judge(evaluations, ScriptedJudge(waits=True, fail_on={"scar": "malformed"}))
    assert (found.valid, found.failures) == (4, {"malformed": 2})
    assert found.prompt.startswith("own@")
    names = "judge prompt checks teachers pairs valid failures agreement severity"
    assert list(found.to_dict()) == names.split()
