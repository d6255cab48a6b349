"""The report in what a policy wrote."""

import csv
import re
from typing import Any

import pytest

from rrg_rewards.rewards import make_reward
from rrg_rewards.rewards.completions import ReportExtractor
from rrg_rewards.utilities.settings import SettingError


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("Cardiomegaly.<|im_end|>\n<|endoftext|><|endoftext|>", "Cardiomegaly."),
        ("Cardiomegaly.</s><pad><pad>", "Cardiomegaly."),
        ("<s> Cardiomegaly.<end_of_turn>", "Cardiomegaly."),
        ("Edema?</think>Clear.<\uff5cend\u2581of\u2581sentence\uff5c><\uff5c\u2581pad\u2581\uff5c>", "Clear."),
        ("<think>Edema?</think>\nCardiomegaly.", "Cardiomegaly."),
        ("Edema?</think>Cardiomegaly.", "Cardiomegaly."),
        ("<think>a</think>Edema.<think>b</think>Cardiomegaly.", "Cardiomegaly."),
        ("<think>Edema? Cardiomegaly.", ""),
        ("<think>a</think>Cardiomegaly.<think>more", "Cardiomegaly."),
        ("[THINK]Edema?[/THINK]Clear.", "Clear."),
        ("<unused94>thought\nEdema?<unused95>Clear.", "Clear."),
        ("\u25c1think\u25b7Edema?\u25c1/think\u25b7Clear.", "Clear."),
        (
            "<|begin_of_thought|>Edema?<|end_of_thought|>\n\n<|begin_of_solution|>Clear.<|end_of_solution|>",
            "Clear.",
        ),
        (
            "<|channel|>analysis<|message|>Edema?<|end|><|start|>assistant<|channel|>final<|message|>Clear.<|return|>",
            "Clear.",
        ),
        ("<|channel|>analysis<|message|>Edema? Cardiomegaly.", ""),
        ("analysisEdema? No.assistantfinalClear.", "Clear."),
        ("I see <answer>Edema.</answer>; no, <answer>Clear.</answer>", "Clear."),
        ("<think>a</think><Answer>\n<report>Clear.</report>\n</Answer>", "Clear."),
        ("<answer><think>Edema?</think>Clear.</answer>", "Clear."),
        ("Edema?</think>Clear.</answer>", "Clear."),
        ("```\nClear.\n```", "Clear."),
        ("```Clear.```", "Clear."),
        ("Here is the report:\n\n```text\nFindings:\nClear.\n```\n", "Findings:\nClear."),
        (r"The report is $\boxed{\text{Clear.}}$.", "Clear."),
        ("No edema.\n\n**Final answer:**\nClear.", "Clear."),
        ("Final answer: no. ## Final Answer\n\\boxed{Clear.}", "Clear."),
        ("Large heart? The final answer is: Clear.", "Clear."),
        ("<|channel>thought\nEdema?\n<channel|>Clear.<turn|>", "Clear."),
        ("<think>x</think><answer><|begin_of_box|>Clear.<|end_of_box|></answer>", "Clear."),
        ("<think>x</think>The report:\n<|begin_of_box|>Clear.<|end_of_box|>", "Clear."),
        ("<|start|>assistant<|channel|>final <|constrain|>text<|message|>Clear.<|return|>", "Clear."),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nClear.<|eot_id|>", "Clear."),
        ("<|im_start|>assistant\nClear.<|im_end|>", "Clear."),
        (r"No: \boxed{Edema.} Now: \boxed{\text{Clear {\bf{5} mm}}}", r"Clear {\bf{5} mm}"),
        ("analysisThe image shows edema. We must write", ""),
    ],
)
def test_a_report_is_extracted_from_known_forms(text: str, report: str) -> None:
    assert ReportExtractor()(text) == report
    assert ReportExtractor("raw")(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " Nodule <5 mm and >3 mm.\n",
        "<findings>Clear.</findings>\n<impression>Normal.</impression>",
        "<answer>Clear.",
        "Clear. ```",
        r"Clear \boxed{",
        "I think the final answer will come with the follow-up.",
        "FINAL REPORT\nREPORT: Clear.",
        "FINDINGS: Edema.\n\nIMPRESSION:\n```\nHeart failure.\n```",
        "Findings:\n```\nEdema.\n```\nImpression:\n```\nCHF.\n```",
        "No final answer: pathology pending. Edema.",
        "Edema. Awaiting final answer\nNo effusion.",
        "Size 3<unk>4 mm.",
    ],
)
def test_other_text_is_untouched(text: str) -> None:
    assert ReportExtractor()(text) == text


def test_real_reports_are_untouched(shared_data: Any) -> None:
    with (shared_data / "ct_rate_labels" / "reports.csv").open(newline="", encoding="utf-8") as file:
        reports = [row["report_text"] for row in csv.DictReader(file)]
    assert len(reports) > 100
    assert [*map(ReportExtractor(), reports)] == reports


@pytest.mark.parametrize("size", [20_000])
@pytest.mark.parametrize(
    "part", ["<answer>", "</answer>", "\\boxed{", "{a}", "```", "```a\n", ":\n", "final answer:", "a"]
)
def test_the_time_grows_with_the_length_only(part: str, size: int) -> None:
    assert isinstance(ReportExtractor()(part * (size // len(part))), str)


@pytest.mark.parametrize(
    ("pattern", "text", "report"),
    [
        ("<a>(.*?)</a>", "<think><a>No.</a></think><a>Edema.\nNodule.</a><|im_end|>", "Edema.\nNodule."),
        ("<f>(.*)</f>|<i>(.*)</i>", "Edema.", ""),
        ("<f>(.*)</f>(?:.*<i>(.*)</i>)?", "<f>Edema.</f>", "Edema."),
        ("<f>(.*?)</f>", "<think><f>Clear.</f> hm", ""),
        ("opened", "Edema? No.", ""),
        ("opened", "Edema?</think> No. </think><answer>Clear.</answer><|im_end|>", "Clear."),
    ],
)
def test_a_pattern_selects_the_report(pattern: str, text: str, report: str) -> None:
    assert ReportExtractor(pattern)(text) == report


@pytest.mark.parametrize("report", ["think", "(", 3, None, re.compile("(a)")])
def test_a_setting_without_a_report_is_refused(report: Any) -> None:
    with pytest.raises(SettingError, match="report"):
        make_reward("rouge", report=report)


def test_extracted_and_empty_reports_are_logged() -> None:
    logged: dict[str, float] = {}
    completions = ["Edema.", "<think>a</think>Edema.", "<think>a", []]
    reward = make_reward("rouge")
    assert reward(completions, reference=["Edema."] * 4, log_metric=logged.__setitem__) == [1.0, 1.0, 0.0, None]
    assert logged["rouge/extracted"] == pytest.approx(2 / 3)
    assert logged["rouge/empty"] == pytest.approx(1 / 3)
    assert logged["rouge/unscorable"] == 0.25


def test_raw_completions_and_patterns_are_part_of_the_signature() -> None:
    signatures = {make_reward("rouge", report=report).signature for report in ("auto", "raw", "<a>(.*)</a>")}
    assert len(signatures) == 3
    assert make_reward("rouge").signature in signatures


def test_parts_of_a_composed_reward_extract_for_themselves() -> None:
    parts = [
        {"name": "rouge"},
        {"name": "format", "pattern": "<think>.*</think>.*", "weight": 10},
        {"name": "rouge", "report": "auto", "as": "own", "weight": 100},
    ]
    text, reference = "<think>Edema.</think>Clear.", {"reference": ["Clear."]}
    assert make_reward("composed", parts=parts)([text], **reference) == [111.0]
    (reward,) = make_reward("composed", parts=parts, report="raw")([text], **reference)
    assert 110.0 < reward < 111.0
    assert make_reward("composed", parts=parts, report="Nodule(.*)")([text], **reference) == [110.0]


ASKED, REPLY = {"role": "user", "content": "Report. <think>"}, {"role": "assistant", "content": "Edema."}


@pytest.mark.parametrize(
    ("prompt", "completion", "report", "reward"),
    [
        ("Report.<think>\n", "Edema.", "auto", 0.0),
        ("Report.<think>\n", "Nodule?</think>Edema.", "auto", 1.0),
        ("Report.<|channel|>analysis<|message|>", "Nodule?<|channel|>final<|message|>Edema.", "auto", 1.0),
        ("Report.<think>\n", "Edema.", "(E.*)", 0.0),
        ("Report.<think>\n", "Edema.", "raw", 1.0),
        ("Report.<think>\n\n</think>\n\n", "Edema.", "auto", 1.0),
        ("Think in <think>.", "Edema.", "auto", 1.0),
        (None, "Edema.", "auto", 1.0),
        ([ASKED], [REPLY], "auto", 0.0),
        ([{**ASKED, "content": [{"type": "text", "text": ASKED["content"]}]}], [REPLY], "auto", 0.0),
        ([ASKED], [{**REPLY, "reasoning_content": "Nodule?"}], "auto", 1.0),
        ([ASKED], [REPLY, {"role": "tool", "content": ""}, REPLY], "auto", 1.0),
        ([{"role": "user", "content": "<think>"}, {"role": "assistant", "content": ""}], [REPLY], "auto", 1.0),
    ],
)
def test_a_prompt_may_open_the_reasoning(prompt: Any, completion: Any, report: str, reward: float) -> None:
    logged: dict[str, float] = {}
    given = {"prompts": [prompt, "Report."], "completions": [completion, "Edema."], "reference": ["Edema."] * 2}
    single = make_reward("rouge", report=report)
    composed = make_reward("composed", parts=[{"name": "rouge", "report": report}])
    assert single(**given, log_metric=logged.__setitem__) == composed(**given) == [reward, 1.0]
    assert logged.get("rouge/empty", 0.0) == (1 - reward) / 2


def test_there_are_as_many_prompts_as_completions() -> None:
    with pytest.raises(ValueError, match="prompts"):
        make_reward("rouge")(prompts=["a"], completions=["a", "b"], reference=["a", "b"])
