"""CT-FineBench's tasks: the prompts, and the checks of answers."""

import json
from typing import Any

import pytest
from judge_answers import block

from rrg_rewards.judges.base import AnswerError
from rrg_rewards.judges.tasks.finebench import (
    Answer,
    AnswerPairs,
    AnswersTask,
    GradesTask,
    ItemsTask,
    Questions,
    Refused,
    ReportFindings,
    TriplesTask,
)
from rrg_rewards.questions import get_question_schema
from rrg_rewards.questions.schema import AttributeSpec, FindingSpec, QAItem, QuestionSchema


def spec(name: str, kind: Any, question: str) -> AttributeSpec:
    return AttributeSpec(name, kind, question, f"The {name}.", ("one", "two", "three", "four", "five"))


NODULE = FindingSpec(
    "Lung nodule",
    (
        spec("existence", "existence", "Is there a lung nodule?"),
        spec("size", "numeric", "What is the size of the lung nodule?"),
        spec("location", "location", "Where is the lung nodule?"),
        spec("margin", "categorical", "What is the margin of the lung nodule like?"),
    ),
)
EFFUSION = FindingSpec(
    "Pleural effusion",
    (
        spec("existence", "existence", "Is there pleural effusion?"),
        spec("severity", "categorical", "How large is the pleural effusion?"),
        spec("type", "categorical", "What type of effusion is the pleural effusion?"),
    ),
)
SCHEMA = QuestionSchema("two", (NODULE, EFFUSION))
REPORT = "Spiculated nodule of 1.2 cm in the right upper lobe. Small left pleural effusion. No pneumothorax."


def stated(finding: str, quote: str, **attributes: str) -> dict[str, Any]:
    listed = [{"attribute": name, "answer": answer} for name, answer in attributes.items()]
    return {"finding": finding, "quote": quote, "attributes": listed}


def items(*findings: dict[str, Any], report: str = REPORT) -> tuple[Any, ...]:
    return ItemsTask(SCHEMA).parse(report, json.dumps({"findings": findings}))


HONEST = (
    stated("Pleural effusion", "left pleural effusion", severity="small"),
    stated("Lung nodule", "nodule", margin="spiculated", size="1.2 cm", location="right upper lobe"),
)


def test_items_task_returns_questions_in_the_order_of_the_schema() -> None:
    found = items(*HONEST)
    assert [(item.finding, item.attribute, item.answer) for item in found] == [
        ("Lung nodule", "existence", "yes"),
        ("Lung nodule", "size", "1.2 cm"),
        ("Lung nodule", "location", "right upper lobe"),
        ("Lung nodule", "margin", "spiculated"),
        ("Pleural effusion", "existence", "yes"),
        ("Pleural effusion", "severity", "small"),
    ]
    assert found[1].question == NODULE.attributes[1].question
    assert found[1].answer_type == "numeric"
    assert items() == ()


def test_items_task_leaves_out_an_answer_that_the_question_contains() -> None:
    found = items(stated("Pleural effusion", "pleural effusion", type="pleural"))
    assert [item.attribute for item in found] == ["existence"]


@pytest.mark.parametrize(
    ("findings", "message"),
    [
        ([stated("Lung mass", "nodule")], "findings: 1 names that the question schema does not have"),
        ([*HONEST, HONEST[0]], "findings: the same finding occurs twice"),
        ([stated("Lung nodule", "nodule", density="solid")], "of Lung nodule: 1 names that the question schema does"),
        ([stated("Lung nodule", "nodule", existence="nodule")], "of Lung nodule: 1 names that the question schema"),
        ([stated("Lung nodule", "cavity")], "findings of Lung nodule: the quote is not in the report"),
        ([stated("Lung nodule", "no nodule")], "or denies the finding"),
    ],
)
def test_items_task_rejects_what_the_report_does_not_state(findings: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(AnswerError, match=message) as caught:
        items(*findings)
    assert caught.value.kind == "inconsistent"


@pytest.mark.parametrize(
    ("attributes", "refused"),
    [
        ({"size": "3 cm"}, Refused.NOT_VERBATIM),
        ({"size": " "}, Refused.NOT_VERBATIM),
        ({"size": "spiculated"}, Refused.NOT_NUMERIC),
        # Words of two sentences that together say what neither does.
        ({"location": "left upper lobe"}, Refused.NOT_VERBATIM),
        ({"location": "right upper lobe " * 11}, Refused.NOT_VERBATIM),
    ],
)
def test_items_task_keeps_the_questions_beside_a_refused_answer(attributes: dict[str, str], refused: Refused) -> None:
    found = items(stated("Lung nodule", "nodule", margin="spiculated", **attributes))
    assert [item if isinstance(item, Refused) else item.attribute for item in found] == ["existence", refused, "margin"]


ASKED = items(*HONEST)


def answers(*given: Any, report: str = REPORT) -> tuple[Answer, ...]:
    entries = [{"question": f"Q{number}", "answer": answer} for number, answer in enumerate(given, start=1)]
    return AnswersTask().parse(Questions(report, ASKED), json.dumps({"answers": entries}))


def test_answers_task_returns_words_of_the_report_or_none() -> None:
    given = ("Spiculated nodule", " 12 mm ", "upper lobe", None, "", "small")
    assert answers(*given) == ("yes", "12 mm", "upper lobe", None, None, "small")
    denied = answers("no nodule", None, None, None, None, None, report="There is no nodule.")
    assert denied == ("no", None, None, None, None, None)


OTHER_WORDS = Refused.NOT_VERBATIM


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("nodule", "8 mm", None, None, None, "small"), ("yes", OTHER_WORDS, None, None, None, "small")),
        (("yes", "1.2 cm", None, None, None, None), (OTHER_WORDS, "1.2 cm", None, None, None, None)),
        ((None, None, "left lower lobe", None, None, "tiny"), (None, None, OTHER_WORDS, None, None, OTHER_WORDS)),
        (
            (None, None, "right upper lobe " * 11, "spiculated", None, None),
            (None, None, OTHER_WORDS, "spiculated", None, None),
        ),
    ],
)
def test_answers_task_keeps_the_answers_beside_one_in_other_words(given: Any, expected: Any) -> None:
    assert answers(*given) == expected


@pytest.mark.parametrize(("number", "missing"), [(5, 1), (7, 0)])
def test_answers_task_rejects_other_numbers_of_answers(number: int, missing: int) -> None:
    with pytest.raises(AnswerError, match=f"questions must be Q1 to Q6, once each; {missing} are missing") as caught:
        answers(*[None] * number)
    assert caught.value.kind == "inconsistent"


def test_answers_task_rejects_a_question_that_is_answered_twice() -> None:
    entry = {"question": "Q1", "answer": None}
    with pytest.raises(AnswerError, match="the same question occurs twice"):
        AnswersTask().parse(Questions(REPORT, ASKED[:1]), json.dumps({"answers": [entry, entry]}))


def test_answers_prompt_does_not_contain_the_answers() -> None:
    system, user = AnswersTask().messages(Questions("Clear lungs.", ASKED))
    assert block(user["content"], "report") == '"Clear lungs."'
    told = block(user["content"], "questions").splitlines()
    assert len(told) == len(ASKED)
    assert told[1].startswith('Q2: "What is the size of the lung nodule?"; meaning: "The size."; examples: "one", ')
    assert not any(item.answer in system["content"] + user["content"] for item in ASKED if item.answer != "yes")


@pytest.mark.parametrize(("shares_report", "end"), [(False, "</questions>"), (True, "</report>")])
def test_answers_prompt_begins_with_what_requests_share(shares_report: bool, end: str) -> None:
    questions = [item for item in items(*HONEST) if isinstance(item, QAItem)]
    asked = [("Nodule.", (questions[0],)), ("Nodule." if shares_report else "Effusion.", (questions[shares_report],))]
    first, second = (AnswersTask().messages(Questions(*one, shares_report)) for one in asked)
    assert first[0] == second[0]
    contents = [messages[1]["content"].partition(end) for messages in (first, second)]
    assert contents[0][0] == contents[1][0]
    assert contents[0][2] != contents[1][2]


def test_grades_task() -> None:
    task, pairs = GradesTask(), AnswerPairs(ASKED[1:4], ("12 mm", "right lobe", "smooth"))
    told = block(task.messages(pairs)[1]["content"], "answers").splitlines()
    assert told[1].endswith('true answer: "right upper lobe"; other answer: "right lobe"')
    grades = [{"pair": f"A{number}", "grade": grade} for number, grade in ((1, "right"), (2, "partial"), (3, "wrong"))]
    assert task.parse(pairs, json.dumps({"grades": grades[::-1]})) == (1, 0.5, 0)
    with pytest.raises(AnswerError, match="pairs must be A1 to A3, once each; 1 are missing"):
        task.parse(pairs, json.dumps({"grades": grades[:2]}))
    with pytest.raises(AnswerError, match=r"grades\.0\.grade: Field required"):
        task.parse(pairs, json.dumps({"grades": [{"pair": "A1"}]}))


@pytest.mark.parametrize("invalid", ["1", "Right", "", 1, None, ["right"], {"right": 1}, True])
def test_grades_task_keeps_the_grades_beside_an_invalid_one(invalid: Any) -> None:
    task, pairs = GradesTask(), AnswerPairs(ASKED[1:4], ("12 mm", "right lobe", "smooth"))
    grades = [{"pair": f"A{number}", "grade": grade} for number, grade in ((1, "right"), (2, invalid), (3, "partial"))]
    assert task.parse(pairs, json.dumps({"grades": grades})) == (1, None, 0.5)
    # The server is still asked for the three grades only.
    assert task.schema["properties"]["grades"]["items"]["properties"]["grade"]["enum"] == ["right", "partial", "wrong"]


def test_grades_prompt_follows_over_specified() -> None:
    grades = {}
    for setting in ("right", "partial"):
        system = GradesTask(setting).messages(AnswerPairs((), ()))[0]["content"]  # type: ignore[arg-type]
        grades[setting] = dict(line[2:].split(": ", 1) for line in system.splitlines() if line.startswith('- "'))
    assert "more specific case" in grades["right"]['"right"']
    assert "more specific" not in grades["right"]['"partial"']
    assert "more specific" not in grades["partial"]['"right"']
    assert "more specific case" in grades["partial"]['"partial"']


def test_items_prompt_describes_the_schema() -> None:
    system, _ = ItemsTask(SCHEMA).messages(REPORT)
    assert "- Lung nodule\n  - size: The size. Examples: one; two" in system["content"]
    assert "existence" not in system["content"]
    finding = ItemsTask(SCHEMA).schema["properties"]["findings"]["items"]["properties"]
    assert finding["finding"]["enum"] == ["Lung nodule", "Pleural effusion"]
    attributes = finding["attributes"]["items"]["properties"]["attribute"]["enum"]
    assert attributes == ["size", "location", "margin", "severity", "type"]


def test_finebench_prompt_hashes_differ() -> None:
    other = QuestionSchema("one", (NODULE,))
    tasks = [ItemsTask(SCHEMA), ItemsTask(other), AnswersTask(), GradesTask(), GradesTask("partial")]
    assert len({task.prompt_hash for task in tasks}) == 5
    assert ItemsTask(SCHEMA) == ItemsTask(SCHEMA) != ItemsTask(other)
    assert ItemsTask(SCHEMA).prompt_hash == ItemsTask(SCHEMA).prompt_hash
    assert AnswersTask() == AnswersTask() != GradesTask()
    assert len({AnswersTask(), AnswersTask()}) == 1


TRIPLES = TriplesTask(get_question_schema("ct_rate"))
MINED_REPORT = "Spiculated nodule of 1.2 cm in the\nright upper lobe. It is stable. Small left pleural effusion."
MINED_ITEM = ReportFindings(MINED_REPORT, ("Lung nodule", "Pleural effusion"))


def entry(quote: str, value: str, finding: str = "Lung nodule", attribute: str = "size") -> dict[str, str]:
    return {"quote": quote, "finding": finding, "attribute": attribute, "value": value}


def mined(*entries: dict[str, str]) -> Any:
    return TRIPLES.parse(MINED_ITEM, json.dumps({"triples": entries}))


def test_triples_task_returns_triples_in_the_words_of_the_report() -> None:
    found = mined(
        entry("nodule of 1.2 cm in the right  upper lobe.", "12 mm", attribute=" Size "),
        entry("right upper lobe", "Right Upper Lobe", attribute="location"),
        entry("It is stable", "stable", attribute="change"),
        entry("Small left pleural effusion", "small", "Pleural effusion", "amount of fluid"),
    )
    assert [one[:3] for one in found] == [
        ("Lung nodule", "size", "12 mm"),
        ("Lung nodule", "location", "right upper lobe"),
        ("Lung nodule", "change", "stable"),
        ("Pleural effusion", "amount of fluid", "small"),
    ]
    assert mined() == ()
    assert len(mined(*[entry("It is stable", "stable", attribute="change")] * 2)) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            entry("nodule of 1.2 cm", "1.2 cm", finding="Emphysema"),
            "triple 1: the finding is not one of those asked for",
        ),
        (entry("nodule measuring 1.2 cm", "1.2 cm"), "the quote is not a passage of the report"),
        (entry(" . ", "1.2 cm"), "the quote is not a passage of the report"),
        (entry("nodule of 1.2 cm", "3 cm"), "the value is not in the words of its quote"),
        # In the report, but not in the quote.
        (entry("nodule of 1.2 cm", "stable"), "the value is not in the words of its quote"),
        (entry("nodule of 1.2 cm", " "), "the value is not in the words of its quote"),
        (entry("nodule of 1.2 cm", "1.2 cm", attribute=" "), "the attribute must be named in 1 to 4 words"),
        (entry("nodule of 1.2 cm", "1.2 cm", attribute="a b c d e"), "the attribute must be named in 1 to 4 words"),
        (entry("nodule of 1.2 cm", " ".join(["nodule"] * 16)), "more than 15 words"),
    ],
)
def test_triples_task_rejects_what_the_report_does_not_state(given: dict[str, str], message: str) -> None:
    with pytest.raises(AnswerError, match=message) as caught:
        mined(given)
    assert caught.value.kind == "inconsistent"


def test_triples_schema_names_the_findings() -> None:
    names = TRIPLES.schema["properties"]["triples"]["items"]["properties"]["finding"]["enum"]
    assert len(names) == 18
    assert TRIPLES.prompt_hash != TriplesTask(get_question_schema("merlin")).prompt_hash
