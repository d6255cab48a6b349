"""Runs of a judge that append to a file: what is held, what it costs, interrupts, failures, other files."""

import asyncio
import json
import os
import signal
import sys
import threading
import warnings

import pytest
from answering_judge import AnsweringJudge
from counting_answers import counts_of
from run_notes import RunNotes
from scripted_judge import ScriptedJudge

from rrg_rewards.analysis import CountingRun, CountingSettings, Estimate, count_errors
from rrg_rewards.analysis.answers import choose_model, estimate_requests, evaluate_in_batches
from rrg_rewards.data.tables.appending import AppendedLines
from rrg_rewards.data.tables.table import TableError
from rrg_rewards.judges import ReportPair
from rrg_rewards.judges.base import Judge
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.utilities.run_log import RunWarning
from rrg_rewards.utilities.settings import SettingError

PAIRS = [
    ReportPair("Small left effusion.", "Cardiomegaly."),
    ReportPair("Normal chest.", "Right lung nodule."),
    ReportPair("Pulmonary edema.", "Normal chest."),
    ReportPair("Right lung nodule.", "Small left effusion."),
]


def well(pair):
    return counts_of(f"{pair.reference} | {pair.candidate}")


@pytest.fixture
def output(tmp_path):
    return tmp_path / "counts.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def held(path):
    return [ReportPair(line["reference"], line["candidate"]) for line in lines(path)]


def test_a_run_requests_only_what_the_file_lacks(output):
    judge = AnsweringJudge(well)
    first = count_errors(PAIRS[:2], judge, output)
    second = count_errors([*PAIRS, PAIRS[0]], judge, output)
    assert (first.num_held, first.written, first.exit_code) == (0, 2, 0)
    assert (second.num_held, second.written, second.exit_code) == (2, 2, 0)
    assert judge.asked == held(output) == PAIRS
    third = count_errors(PAIRS, judge, output)
    assert (third.missing, third.written, third.exit_code) == ([], 0, 0)
    assert len(judge.asked) == 4


def test_a_run_keeps_each_answer_at_once(output):
    seen = []

    def look(pair):
        seen.append(len(lines(output)))
        return well(pair)

    count_errors(PAIRS, AnsweringJudge(look), output)
    assert seen == [0, 1, 2, 3]


def test_a_run_tells_its_progress(output):
    log = RunNotes()
    count_errors(PAIRS[:2], AnsweringJudge(well), output, log=log)
    assert log.steps == [("counting", 0, 2), ("counting", 1, 0), ("counting", 1, 0)]


class PricedJudge(AnsweringJudge):
    """A judge whose settings contain a price."""

    def arguments(self):
        return {"price": (1.0, 2.0)}


def test_an_estimate_sends_and_writes_nothing(output):
    judge = PricedJudge(well)
    run = CountingRun(PAIRS, output, judge)
    found = run.estimate()
    assert (judge.asked, output.exists()) == ([], False)
    assert found.requests == 4
    assert found.cost == (found.prompt_tokens + 2 * found.completion_tokens) / 1e6
    count_errors(PAIRS[:3], AnsweringJudge(well), output)
    assert CountingRun(PAIRS, output).estimate().requests == 1


def test_an_estimate_in_words():
    assert str(Estimate(2, 1500, 20, None)).splitlines() == [
        "estimated tokens: 1,500 of prompts, 20 of answers (4 characters per token)",
        "cost: unknown without a `price` in the settings of the judge",
    ]
    assert str(Estimate(2, 1, 1, 0.0213)).splitlines()[1:] == ["estimated cost: 0.0213, without repeated requests"]
    assert "1,234.50" in str(Estimate(2, 1, 1, 1234.5))
    longest = "if all answers use up the limit, as reasoning may: 4,000 tokens"
    assert str(Estimate(2, 1, 1, None, 4000)).splitlines()[2:] == [longest]
    assert str(Estimate(2, 1, 1, 1.0, 4000, 8.5)).splitlines()[2:] == [f"{longest}, cost 8.50"]


def test_estimate_requests_counts_all_runs():
    prompts = [[{"role": "system", "content": "s" * 40}, {"role": "user", "content": "u" * 400}]] * 2
    known = {"price": (1.0, 10.0), "extra_body": {"max_completion_tokens": 500}}
    once, runs = (estimate_requests(prompts, ["a" * 80] * 2, known, number) for number in (1, 5))
    assert (once.requests, once.prompt_tokens, once.completion_tokens) == (2, 2 * (14 + 104), 2 * 24)
    assert (runs.requests, runs.prompt_tokens, runs.completion_tokens) == (10, 1180, 240)
    assert runs.cost == pytest.approx((1180 + 2400) / 1e6)
    assert (runs.most_completion_tokens, runs.most_cost) == (5000, pytest.approx((1180 + 50_000) / 1e6))
    assert estimate_requests([], [], {}).requests == 0


def test_an_estimate_follows_the_order_of_the_requests(output):
    pairs = [ReportPair(reference * 40, candidate) for candidate in ("Clear.", "Edema.") for reference in ("a ", "b ")]
    by_reference = sorted(pairs, key=lambda pair: pair.reference)
    assert CountingRun(pairs, output).estimate() == CountingRun(by_reference, output).estimate()


def test_a_preview_shows_the_first_missing_prompt(output):
    assert '"Small left effusion."' in CountingRun(PAIRS, output).preview()
    count_errors(PAIRS[:1], AnsweringJudge(well), output)
    run = CountingRun(PAIRS, output)
    assert '"Small left effusion."' not in run.preview()
    assert run.describe() == "pairs: 4; in the output: 1; to request: 3"
    assert CountingRun([], output).preview() == ""


def interrupt_at(pair):
    """Answer as if the user pressed Ctrl-C during the answer about a pair, once."""
    left = [pair]

    def answer(item):
        if item in left:
            left.remove(item)
            threading.Event().wait(0.1)  # The caller is waiting by then.
            os.kill(os.getpid(), signal.SIGINT)
        return well(item)

    return answer


@pytest.fixture
def interrupts():
    """Handle interrupts, which a shell makes processes in the background ignore."""
    if sys.platform == "win32":
        pytest.skip("sends SIGINT")
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


needs_signals = pytest.mark.usefixtures("interrupts")


@needs_signals
def test_an_interrupt_keeps_the_answers_and_the_same_call_resumes(output):
    judge = AnsweringJudge(interrupt_at(PAIRS[1]))
    with pytest.raises(KeyboardInterrupt):
        count_errors(PAIRS, judge, output)
    kept = held(output)
    assert kept == PAIRS[: len(kept)]
    assert 1 <= len(kept) < 4
    assert count_errors(PAIRS, judge, output).written == 4 - len(kept)
    assert held(output) == PAIRS


@needs_signals
def test_an_interrupt_in_a_notebook_ends_the_requests(output):
    judge = AnsweringJudge(interrupt_at(PAIRS[1]))

    async def cell():
        with pytest.raises(KeyboardInterrupt):
            count_errors(PAIRS, judge, output)
        asked = len(judge.asked)
        await asyncio.sleep(0.05)
        assert len(judge.asked) == asked
        return count_errors(PAIRS, judge, output)

    loop = asyncio.new_event_loop()
    try:
        run = loop.run_until_complete(cell())
    finally:
        loop.close()
    assert run.num_held >= 1
    assert sorted(held(output), key=PAIRS.index) == PAIRS


@needs_signals
def test_an_interrupt_ends_a_judge_that_answers_in_a_thread(output):
    left = [PAIRS[1]]

    def answer(pair):
        if pair in left:
            left.remove(pair)
            judge.interrupt()
        return well(pair)

    judge = AnsweringJudge(answer, in_thread=True)
    with pytest.raises(KeyboardInterrupt):
        count_errors(PAIRS, judge, output)
    assert held(output) == PAIRS[:1]
    assert judge.asked == PAIRS[:2]
    count_errors(PAIRS, judge, output)
    assert held(output) == PAIRS


def test_failures_are_counted_with_a_reason_and_asked_again(output):
    bad = {PAIRS[0]: "{", PAIRS[2]: "{"}
    judge = AnsweringJudge(lambda pair: bad.get(pair) or well(pair))
    with pytest.warns(RunWarning, match="2 failed with malformed; the first: "):
        run = count_errors(PAIRS, judge, output)
    assert (run.failures, run.written, run.exit_code) == ({"malformed": 2}, 2, 0)
    assert list(run.reasons) == ["malformed"]
    assert run.to_dict()["failures"] == {"malformed": 2}
    assert held(output) == [PAIRS[1], PAIRS[3]]
    bad.clear()
    assert count_errors(PAIRS, judge, output).written == 2


class ResultJudge(Judge):
    """Returns results without texts to parse."""

    def __init__(self, is_immediate):
        self.is_immediate = is_immediate

    def arguments(self):
        return {"is_immediate": self.is_immediate}

    @property
    def signature(self):
        return "results"

    async def evaluate(self, task, items):
        return [CountingTask().parse(item, well(item)) for item in items]


@pytest.mark.parametrize("is_immediate", [True, False])
def test_results_without_texts_are_kept(output, is_immediate):
    run = CountingRun(PAIRS, output, ResultJudge(is_immediate))
    run.request()
    assert (run.written, held(output)) == (4, PAIRS)


def test_an_immediate_judge_is_asked_in_batches(output):
    pairs = [ReportPair(f"Nodule of {size} mm.", "Normal chest.") for size in range(1, 131)]
    judge, sizes = ResultJudge(True), []
    evaluate = judge.evaluate_now
    judge.evaluate_now = lambda task, items: sizes.append(len(items)) or evaluate(task, items)
    CountingRun(pairs, output, judge).request()
    assert sizes == [64, 64, 2]


def test_answers_of_another_judge_or_prompt_are_told_of(output):
    count_errors(PAIRS[:1], AnsweringJudge(well), output)
    with pytest.warns(RunWarning, match="also contains reports of another judge: answering"):
        count_errors(PAIRS, AnsweringJudge(well, "other"), output)
    assert {line["judge"] for line in lines(output)} == {"answering", "other"}
    changed = [{**line, "prompt_hash": "0" * 12} for line in lines(output)]
    output.write_text("".join(json.dumps(line) + "\n" for line in changed))
    with pytest.warns(RunWarning) as told:
        count_errors(PAIRS, AnsweringJudge(well), output)
    assert any("with other instructions" in str(one.message) for one in told)


def test_the_same_judge_is_no_other(output):
    count_errors(PAIRS[:1], AnsweringJudge(well), output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count_errors(PAIRS, AnsweringJudge(well), output)


def test_an_incomplete_last_line_is_requested_again(output):
    judge = AnsweringJudge(well)
    count_errors(PAIRS, judge, output)
    output.write_bytes(output.read_bytes()[:-20])
    assert CountingRun(PAIRS, output).missing == PAIRS[3:]
    count_errors(PAIRS, judge, output)
    assert held(output) == PAIRS
    assert judge.asked[4:] == PAIRS[3:]


INVALID = {
    "another table": ('{"reference": "a", "candidate": "b"}\n', "it lacks counts, significant, judge, prompt_hash"),
    "damage": ('{\n{"reference": "a"}\n', "not a line of JSON"),
    "counts that are none": (
        '{"reference": "a", "candidate": "b", "counts": [1], "significant": [0], "judge": "j", "prompt_hash": "p"}\n',
        "counts",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_file_is_refused_and_kept(output, name):
    content, message = INVALID[name]
    output.write_text(content)
    judge = AnsweringJudge(well)
    with pytest.raises(TableError, match=message):
        count_errors(PAIRS, judge, output)
    assert (judge.asked, output.read_text()) == ([], content)


def test_two_runs_at_a_time_are_refused(output):
    pytest.importorskip("fcntl")
    with AppendedLines(output), pytest.raises(TableError, match="another process is writing to it"):
        count_errors(PAIRS, AnsweringJudge(well), output)


def test_a_run_without_a_judge_requests_nothing(output):
    with pytest.raises(SettingError, match="judge: is required"):
        CountingRun(PAIRS, output).request()
    assert not output.exists()


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("rules", "judge: rules counts no errors; name a language model, as in openai:MODEL"),
        (ScriptedJudge(), "judge: scripted counts no errors"),
        ("ruls", "unknown judge 'ruls'; did you mean 'rules'?"),
        ("{name: rules", "cannot read"),
    ],
)
def test_a_judge_that_is_no_language_model_is_refused(judge, message):
    with pytest.raises(SettingError) as raised:
        choose_model(judge, "counts no errors")
    assert message in str(raised.value)


def test_the_destination_of_reports_is_named(output):
    judge, log = AnsweringJudge(well), RunNotes()
    judge.address = type("Address", (), {"host": "api.example.org", "is_loopback": False})
    count_errors(PAIRS, judge, output, CountingSettings(), log=log)
    assert log.notes == ["4 pairs of reports are sent to api.example.org, as allow_remote permits"]


def test_items_are_evaluated_in_batches_with_progress():
    steps = []
    judge = AnsweringJudge(well)
    results = evaluate_in_batches(judge, CountingTask(), PAIRS, 3, lambda *numbers: steps.append(numbers))
    assert len(results) == 4
    assert steps == [(0, 4), (3, 0), (1, 0)]
