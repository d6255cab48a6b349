"""CRIMSON's task: the prompt, and the checks of an answer."""

import json
import pickle
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_answers import BOTH, EFFUSION, HONEST, LOCATION, PAIRS, changed, finding, make_answer, text

from rrg_rewards.functional import CrimsonEvaluation, crimson_score
from rrg_rewards.judges import RuleJudge
from rrg_rewards.judges.base import AnswerError, ReportPair
from rrg_rewards.judges.tasks.base import form_keys, read_answer
from rrg_rewards.judges.tasks.crimson import (
    AttributeErrorAnswer,
    CrimsonAnswer,
    CrimsonPrompt,
    CrimsonTask,
    FindingAnswer,
)
from rrg_rewards.schemas import ATTRIBUTE_ERROR_TYPES, ATTRIBUTE_WEIGHTS, SIGNIFICANCE_WEIGHTS
from rrg_rewards.utilities.settings import SettingError

TASK, GUIDED = (CrimsonTask(name) for name in ("own", "guidelines"))
PAIR, ANSWER = PAIRS["one of two found"], HONEST["one of two found"]
SECRET = "xylophone"


def error(answer: str, pair: ReportPair = PAIR) -> AnswerError:
    with pytest.raises(AnswerError) as raised:
        TASK.parse(pair, answer)
    assert SECRET not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("case", PAIRS)
def test_crimson_task_accepts_honest_answers(case: str) -> None:
    found = TASK.parse(PAIRS[case], text(HONEST[case]))
    assert found == CrimsonEvaluation.from_dict(HONEST[case])


def test_crimson_scores_of_honest_answers() -> None:
    scores = crimson_score([TASK.parse(PAIRS[case], text(HONEST[case])) for case in PAIRS])
    # 0: nothing said. (0.5 - 0.5) / 1.5. -A / (1 + A) with A = 1.
    assert scores.tolist() == [0, 0, -0.5]


def test_crimson_schema_is_strict_and_plain() -> None:
    def objects(schema: Any) -> list[Mapping[str, Any]]:
        inner = [found for value in schema.values() if isinstance(value, dict) for found in objects(value)]
        return [schema, *inner] if schema.get("type") == "object" else inner

    found = objects(TASK.schema)
    assert len(found) == 6
    for entry in found:
        assert entry["additionalProperties"] is False
        assert entry["required"] == list(entry["properties"])
    written = json.dumps(TASK.schema)
    for word in ("$ref", "$defs", "title", "description", "pattern", "anyOf", "const", "default"):
        assert f'"{word}"' not in written
    assert list(CrimsonTask.schema.fget(TASK)["properties"]) == list(CrimsonEvaluation().to_dict())


def test_crimson_answer_has_the_published_words() -> None:
    significance = FindingAnswer.__annotations__["clinical_significance"]
    assert get_args(significance) == tuple(SIGNIFICANCE_WEIGHTS)
    assert get_args(AttributeErrorAnswer.__annotations__["severity"]) == tuple(ATTRIBUTE_WEIGHTS)
    (types,) = get_args(AttributeErrorAnswer.__annotations__["error_types"])
    assert get_args(types) == ATTRIBUTE_ERROR_TYPES


def test_crimson_prompt_explains_every_word_of_the_schema() -> None:
    system = TASK.messages(PAIR)[0]["content"]
    for word in (*SIGNIFICANCE_WEIGHTS, *ATTRIBUTE_WEIGHTS, *ATTRIBUTE_ERROR_TYPES):
        assert f'"{word}"' in system
    for key in form_keys(CrimsonAnswer):
        assert f'"{key}"' in system
    # Its own example is an answer of the schema.
    example = next(line for line in system.splitlines() if line.startswith("{"))
    content = json.loads(example.replace('"clinical_significance": "..."', '"clinical_significance": "urgent"'))
    assert read_answer(json.dumps(content), CrimsonAnswer) == content


def test_crimson_prompt_hashes_differ() -> None:
    assert TASK.prompt_hash == CrimsonTask().prompt_hash
    assert len(TASK.prompt_hash) == 12
    assert TASK == CrimsonTask("own") == pickle.loads(pickle.dumps(TASK))
    assert len({TASK, CrimsonTask(), CrimsonTask("crimson-score")}) == 2
    with pytest.raises(SettingError, match="'mine'") as raised:
        CrimsonTask("mine")
    assert raised.value.setting == "prompt"


@pytest.mark.parametrize("prompt", get_args(CrimsonPrompt))
def test_crimson_checks_are_by_prompt_and_part_of_the_task(prompt: CrimsonPrompt) -> None:
    task, strict = CrimsonTask(prompt), CrimsonTask(prompt, "strict")
    published = prompt in ("crimson-score", "crimson-score-guidelines")
    assert task.checks == ("published" if published else "strict")
    assert (task == strict) == (not published)
    assert repr(task) == f"CrimsonTask(prompt={prompt!r}, checks={task.checks!r})"
    assert task.form == strict.form
    scored = CrimsonTask(prompt, "published")
    assert scored == pickle.loads(pickle.dumps(scored))
    if not published:
        assert scored.messages(PAIR) == strict.messages(PAIR)
        # Answers are kept by this hash, and asked again if the checks reject them.
        assert scored.prompt_hash != strict.prompt_hash
        assert scored.prompt_signature.startswith(f"{prompt}@")


def test_crimson_checks_must_be_known() -> None:
    with pytest.raises(SettingError, match="'lax'") as raised:
        CrimsonTask(checks="lax")  # type: ignore[arg-type]
    assert raised.value.setting == "checks"


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "\n  {}\n",
        "```json\n{}\n```",
        "```\n{}\n```\n",
        "<think>Hm, </think> or </think>{}",
        "<think>\nHm.\n</think>\n\n```json\n{}\n```",
    ],
)
def test_read_json_removes_wrappings(wrap: str) -> None:
    assert TASK.parse(PAIR, wrap.replace("{}", text(ANSWER))) == TASK.parse(PAIR, text(ANSWER))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "not JSON"),
        (SECRET, "not JSON"),
        (f"Here is the answer: {text(ANSWER)}", "not JSON"),
        (f"{text(ANSWER)} {SECRET}", "not JSON: Extra data"),
        (f"{text(ANSWER)}{text(ANSWER)}", "not JSON: Extra data"),
        (f"```json\n{text(ANSWER)}\n``` {SECRET}", "not JSON"),
        (f"<think>{SECRET} {text(ANSWER)}", "the answer ends before </think>; allow more tokens"),
        (f"<think>a</think>{text(ANSWER)}</think>{text(ANSWER)}x", "not JSON"),
        (text(ANSWER)[:-5], "not JSON"),
        ("[]", "the answer: Input should be"),
        ("NaN", "NaN is not JSON"),
        ("[" * 100_000, "JSON nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "a number with too many digits"),
        (text(ANSWER).replace('"R1"', '"R1", "id": "R7"', 1), "an object contains the same key twice"),
        (text(changed(ANSWER, matched_findings=None)), "matched_findings: Input should be"),
        (text({**ANSWER, SECRET: 1}), "^[?]: Extra inputs are not permitted$"),
        (text(changed(ANSWER, missing_findings=[1])), "errors.missing_findings.0: Input should be a valid string"),
        (
            text(changed(ANSWER, reference_findings=[finding("R1", EFFUSION, SECRET)])),
            "reference_findings.0.clinical_significance: Input should be 'urgent'",
        ),
        (
            text(changed(ANSWER, attribute_errors=[{**LOCATION, "error_types": [SECRET]}])),
            "errors.attribute_errors.0.error_types.0: Input should be 'location'",
        ),
        (text(changed(ANSWER, attribute_errors=[{**LOCATION, "severity": "urgent"}])), "severity: Input should be"),
        (
            text(changed(ANSWER, predicted_findings=[finding("P1", "\ud800")])),
            "a string contains an unpaired surrogate",
        ),
        ("{}", "reference_findings: Field required .and 3 more."),
    ],
)
def test_crimson_task_rejects_malformed_answers(answer: str, reason: str) -> None:
    with pytest.raises(AnswerError, match=reason) as raised:
        TASK.parse(PAIR, answer)
    assert raised.value.kind == "malformed"
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reference_findings": [BOTH[0], {**BOTH[1], "id": SECRET}]}, r"reference_findings\[1\].id must be R and a"),
        ({"reference_findings": [BOTH[0], {**BOTH[1], "id": "P1"}]}, r"reference_findings\[1\].id must be R and a"),
        ({"reference_findings": [BOTH[0], {**BOTH[1], "id": "R1"}]}, "reference_findings contains R1 twice"),
        (
            {"matched_findings": [{"ref_id": SECRET, "pred_id": "P1"}]},
            "matched_findings contains 1 ids that no finding",
        ),
        ({"matched_findings": [{"ref_id": "R2", "pred_id": "P9"}]}, "matched_findings contains 1 ids that no finding"),
        ({"matched_findings": [{"ref_id": "R2", "pred_id": "P1"}] * 2}, "contains a pair twice: R2, P1"),
        ({"matched_findings": []}, "R2 is neither matched nor in errors.missing_findings"),
        ({"missing_findings": []}, "R1 is neither matched nor in errors.missing_findings"),
        ({"missing_findings": ["R1", "R1"]}, "errors.missing_findings contains R1 twice"),
        ({"missing_findings": ["R1", "R2"]}, "R2 is matched and in errors.missing_findings"),
        ({"missing_findings": ["R1", SECRET]}, "errors.missing_findings contains 1 ids"),
        ({"false_findings": []}, "P2 is neither matched nor in errors.false_findings"),
        ({"false_findings": ["P2", "P2"]}, "errors.false_findings contains P2 twice"),
        ({"false_findings": ["P1", "P2"]}, "P1 is matched and in errors.false_findings"),
        ({"false_findings": ["P2", "R1"]}, "errors.false_findings contains 1 ids"),
        ({"attribute_errors": [{**LOCATION, "ref_id": "R1"}]}, r"attribute_errors\[0\] is about a pair that is not"),
        ({"attribute_errors": [LOCATION, {**LOCATION, "pred_id": "P2"}]}, r"attribute_errors\[1\] is about a pair"),
        ({"reference_findings": [BOTH[0], finding("R2", SECRET)]}, "reference_findings: R2 is not in the report"),
        ({"predicted_findings": [finding("P1", EFFUSION), finding("P2", "pneumothorax")]}, "predicted_findings: P2"),
    ],
)
def test_crimson_task_rejects_inconsistent_answers(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(AnswerError, match=reason) as raised:
        TASK.parse(PAIR, text(changed(ANSWER, **changes)))
    assert raised.value.kind == "inconsistent"
    assert SECRET not in str(raised.value)


def test_crimson_task_accepts_several_matches_of_a_finding() -> None:
    pair = ReportPair("Bilateral pleural effusions.", "Left pleural effusion. Right pleural effusion.")
    answer = make_answer(
        [finding("R1", "bilateral pleural effusions")],
        [finding("P1", "left pleural effusion"), finding("P2", "right pleural effusion")],
        matched="R1-P1 R1-P2",
        attributes=[{**LOCATION, "ref_id": "R1", "pred_id": "P2"}] * 2,
    )
    assert len(TASK.parse(pair, text(answer)).attribute_errors) == 2


NODULES = ReportPair("Nodule in the apex. Nodule in the base. Nodule in the lingula. Lung mass.", "Granuloma. Nodules.")


@pytest.mark.parametrize(
    ("level", "matched", "missing", "reason"),
    [
        ("benign_expected", "R4-P1 R1-P2", "R2 R3", "P1 is matched with R4, which is more significant by two levels"),
        ("benign_expected", "R1-P2 R2-P2 R3-P2", "R4", "P2 is matched with 3 reference findings"),
        ("not_actionable_not_urgent", "R4-P1 R1-P2 R2-P2", "R3", None),
    ],
)
def test_crimson_matches_earn_at_most_the_weight_of_a_finding(
    level: str, matched: str, missing: str, reason: str | None
) -> None:
    names = ("Nodule in the apex", "Nodule in the base", "Nodule in the lingula", "Lung mass")
    answer = make_answer(
        [finding(f"R{i + 1}", name) for i, name in enumerate(names)],
        [finding("P1", "Granuloma", level), finding("P2", "Nodules")],
        matched=matched,
        missing=missing,
        false="" if "P1" in matched else "P1",
    )
    if reason is None:
        assert len(TASK.parse(NODULES, text(answer)).matched_findings) == 3
        return
    with pytest.raises(AnswerError, match=reason) as raised:
        TASK.parse(NODULES, text(answer))
    assert raised.value.kind == "inconsistent"


def test_crimson_task_rejects_lists_that_no_report_can_have() -> None:
    pair = ReportPair("Large effusion.", "Normal.")
    words = ["large effusion", "effusions", "large"]
    answer = make_answer([finding(f"R{row}", word) for row, word in enumerate(words)], missing="R0 R1 R2")
    assert "contains 3 findings for a report of 2 words" in str(error(text(answer), pair))
    pair = ReportPair("Large effusion on the left.", "Normal.")
    answer = make_answer([finding("R1", "effusion, large"), finding("R2", "large effusions")], missing="R1 R2")
    assert "reference_findings contains a finding twice" in str(error(text(answer), pair))


def test_crimson_task_rejects_empty_lists_for_abnormal_reports() -> None:
    empty = text(make_answer())
    assert "reference_findings leaves out most" in str(error(empty, PAIRS["nothing found"]))
    assert "predicted_findings leaves out most" in str(error(empty, PAIRS["all false"]))
    assert crimson_score(TASK.parse(ReportPair("Normal.", "No effusion."), empty)) == 1


@given(st.text())
def test_crimson_task_rejects_any_text(answer: str) -> None:
    with pytest.raises(AnswerError):
        TASK.parse(PAIR, answer)


KEYS = st.sampled_from([*ANSWER, *ANSWER["errors"], "id", "ref_id", "pred_id"])
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.sampled_from(["R1", "R2", "P1", "P2"])),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(KEYS, inner)),
)


@given(st.sampled_from([*ANSWER, *ANSWER["errors"]]), JSON)
def test_crimson_task_rejects_or_scores_any_content(key: str, content: Any) -> None:
    try:
        found = TASK.parse(PAIR, text(changed(ANSWER, **{key: content})))
    except AnswerError:
        return
    assert -1 < crimson_score(found) <= 1


def test_crimson_guidelines_are_added_to_the_instructions_only() -> None:
    (system, data), (guided, same) = TASK.messages(PAIR), GUIDED.messages(PAIR)
    assert same == data
    assert guided["content"].startswith(system["content"])
    added = guided["content"].removeprefix(system["content"])
    for name in (*SIGNIFICANCE_WEIGHTS, *ATTRIBUTE_ERROR_TYPES):
        assert f"\n{name}:" in added
    # A server caches the instructions of all pairs.
    assert GUIDED.messages(PAIRS["all false"])[0] == guided


def test_crimson_prompt_signatures_differ() -> None:
    (own, first), (guided, second) = (task.prompt_signature.split("@") for task in (TASK, GUIDED))
    assert (own, guided, first != second) == ("own", "guidelines", True)


@pytest.mark.parametrize("case", PAIRS)
def test_crimson_answers_with_guidelines_are_checked_as_the_others(case: str) -> None:
    assert GUIDED.parse(PAIRS[case], json.dumps(HONEST[case])) == CrimsonEvaluation.from_dict(HONEST[case])
    assert GUIDED.schema == TASK.schema


@pytest.mark.parametrize("task", [TASK, GUIDED], ids=repr)
def test_crimson_task_accepts_its_answer_of_an_evaluation(task: CrimsonTask) -> None:
    pair = ReportPair("Small left pleural effusion. Cardiomegaly.", "Large left pleural effusion.")
    evaluation = RuleJudge().evaluation(pair)
    found = task.parse(pair, task.answer(evaluation) or "")
    assert crimson_score(found) == crimson_score(evaluation)
    assert found.missing_findings == evaluation.missing_findings
