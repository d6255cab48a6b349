"""A cascade of rules and a second judge: which judge gets a pair, and errors of its settings."""

import asyncio
import copy
import json
import pickle

import pytest
from crimson_servers import answers_of
from fault_server import FaultServer, completion, raw, reply_bytes
from judge_answers import block
from scripted_judge import ScriptedJudge

from rrg_rewards.functional import CrimsonEvaluation, CrimsonFinding, crimson_score
from rrg_rewards.judges import CascadeJudge, JudgeFailure, ReportPair, RuleJudge, get_judge
from rrg_rewards.judges.cascade import disagreements
from rrg_rewards.judges.tasks.counting import CountingTask
from rrg_rewards.judges.tasks.crimson import CrimsonTask
from rrg_rewards.utilities.settings import SettingError

TASK = CrimsonTask()
READ = ReportPair("Small left effusion.", "No effusion.")
# One of three content words is unread; the reference has a finding.
PARTLY = ReportPair("Quorblid, small effusion.", "Small effusion.")
UNREAD = ReportPair("Quorblid of the aorta.", "Normal aorta.")
CANDIDATE = ReportPair("Normal heart.", "Vextramal heart.")
PAIRS = [READ, PARTLY, UNREAD, CANDIDATE]
SERVER = {"name": "openai", "model": "m", "max_retries": 0, "price": [1.0, 4.0]}


def routes(judge, pairs=PAIRS):
    return [getattr(result, "route", "") for result in judge.evaluate_now(TASK, pairs)]


def test_cascade_asks_the_second_judge_about_what_the_rules_did_not_read():
    second = ScriptedJudge(waits=True)
    results = CascadeJudge(second).evaluate_now(TASK, [*PAIRS, UNREAD])
    assert [one.route for one in results] == ["rules", "second", "second", "second", "second"]
    assert second.asked == [[PARTLY, UNREAD, CANDIDATE]]
    rules = RuleJudge().evaluate_now(TASK, [READ])[0]
    assert (results[0], results[0].coverage) == (rules, rules.coverage)
    # The second judge does not know how much was read, but the rules do.
    assert [report.num_unread for report in results[2].coverage] == [1, 0]
    assert [report.num_unread for report in results[3].coverage] == [0, 1]


def test_cascade_keeps_the_rules_result_up_to_a_share_of_unread_words():
    share = RuleJudge().evaluation(PARTLY).coverage[0].unread_share
    assert 0 < share < 1
    for limit, route in ((share, "rules"), (share - 1e-9, "second"), (0, "second"), (1, "rules")):
        assert routes(CascadeJudge(ScriptedJudge(), max_unread=limit), [PARTLY]) == [route]
    # The candidate counts as the reference does, and without a result of the rules there is none to keep.
    assert routes(CascadeJudge(ScriptedJudge(), max_unread=1), [CANDIDATE, UNREAD]) == ["rules", "second"]
    normal = CascadeJudge(ScriptedJudge(), first={"name": "rules", "unread": "normal"}, max_unread=1)
    assert routes(normal, [UNREAD]) == ["rules"]


def test_cascade_keeps_the_rules_result_up_to_a_disagreement():
    pairs = [ReportPair("Large left pneumothorax.", f"Small {side} pneumothorax.") for side in ("left", "right")]
    different = disagreements([RuleJudge().evaluation(pair) for pair in pairs])
    assert 0 < different[0] < different[1]
    for limit, expected in ((None, "rules rules"), (different[0], "rules second"), (0, "second second")):
        assert routes(CascadeJudge(ScriptedJudge(), max_disagreement=limit), pairs) == expected.split()


def test_disagreements_compare_the_score_with_the_f1_of_findings():
    findings = [CrimsonFinding(f"R{n}", "", "urgent") for n in (1, 2)], [CrimsonFinding("P1", "", "urgent")]
    one_of_two = CrimsonEvaluation(*map(tuple, findings), (("R1", "P1"),), missing_findings=("R2",))
    false = CrimsonEvaluation(*map(tuple, findings), (), ("P1",), ("R1", "R2"))
    assert crimson_score([one_of_two, false]).tolist() == [0.5, pytest.approx(-1 / 2)]
    assert disagreements([one_of_two, false, CrimsonEvaluation()]) == pytest.approx([abs(0.5 - 2 / 3), 0, 0])
    assert disagreements([]) == []


def test_cascade_results_are_the_same_asynchronously_and_in_any_batch():
    judge = CascadeJudge(ScriptedJudge(waits=True))
    whole = judge.evaluate_now(TASK, PAIRS)
    assert asyncio.run(judge.evaluate(TASK, PAIRS)) == whole
    assert [judge.evaluate_now(TASK, [pair])[0] for pair in reversed(PAIRS)] == whole[::-1]
    assert judge.has_independent_rows == ScriptedJudge.has_independent_rows
    assert (judge.is_immediate, CascadeJudge(ScriptedJudge()).is_immediate) == (False, True)
    assert judge.evaluate_now(TASK, []) == []


def test_cascade_failure_of_the_second_judge_is_no_score():
    results = CascadeJudge(ScriptedJudge(fail_on={"Vextramal": "malformed"})).evaluate_now(TASK, PAIRS)
    assert [isinstance(one, JudgeFailure) for one in results] == [False, False, False, True]
    failure = results[3]
    assert (failure.kind, failure.reason, failure.route) == ("malformed", "told to", "second")
    assert failure.coverage[1].num_unread == 1


def test_cascade_plan_is_what_is_done():
    second = ScriptedJudge()
    judge = CascadeJudge(second)
    planned = judge.plan(TASK, [*PAIRS, READ])
    assert not second.asked
    assert list(planned) == PAIRS
    assert list(planned.values()) == routes(judge)


@pytest.fixture
def server():
    """A server that answers about all pairs, and counts 2,000 prompt tokens and 200 tokens of answer for each."""
    texts = {pair.candidate: answers_of([pair])[pair.reference + pair.candidate] for pair in PAIRS}

    async def behave(request, writer):
        reply = completion(texts[request.item])
        reply["usage"] = {"prompt_tokens": 2000, "completion_tokens": 200, "total_tokens": 2200}
        await raw(reply_bytes(reply))(request, writer)

    def item_of(messages):
        return json.loads(block(messages[-1]["content"], "candidate_report"))

    with FaultServer(otherwise=behave, item_of=item_of) as served:
        yield served


def test_cascade_counts_the_requests_of_the_second_judge(server):
    judge = CascadeJudge({**SERVER, "base_url": server.url, "concurrency": 1})
    assert routes(judge) == ["rules", "second", "second", "second"]
    assert judge.usage.calls == 3
    assert judge.usage == judge.second.usage


def test_cascade_runs_repeat_the_second_judge_only():
    class Random(ScriptedJudge):
        runs: list[int] = []  # noqa: RUF012 (shared by the runs)

        def rerun(self, run):
            self.runs.append(run)
            return self

    judge = CascadeJudge(Random())
    again = judge.rerun(3)
    assert (Random.runs, judge.rerun(0), judge.rerun(3)) == ([3], judge, again)
    assert routes(again) == ["rules", "second", "second", "second"]
    with pytest.raises(ValueError, match="ScriptedJudge"):
        CascadeJudge(ScriptedJudge()).rerun(1)


def test_cascade_signature_pickle_and_copies():
    judge = CascadeJudge(SERVER, max_unread=0.05)
    assert judge.signature.startswith(f"cascade|first:{{{RuleJudge().signature}}}|second:{{openai|model:m|")
    assert "|max_unread:0.05|version:" in judge.signature
    assert "|max_disagreement:0.2|" in CascadeJudge(SERVER, max_disagreement=0.2).signature
    unpickled = pickle.loads(pickle.dumps(judge))
    assert (unpickled.signature, unpickled.arguments().keys()) == (judge.signature, judge.arguments().keys())
    assert copy.deepcopy(judge) is judge
    assert judge.judge_names == {"rules": "rules", "second": "openai:m"}
    assert (ScriptedJudge().short_name, judge.short_name) == ("scripted", "cascade")
    assert judge.address.is_loopback
    assert "language model" in judge.worker_refusal
    assert CascadeJudge(ScriptedJudge()).worker_refusal is None
    assert CascadeJudge(ScriptedJudge()).usage is None


def test_get_judge_makes_cascades(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text("name: openai\nmodel: m\n")
    for setting in ("cascade:openai:m", f"cascade:{path}", {"name": "cascade", "second": "openai:m"},
                    "{name: cascade, second: {name: openai, model: m}}"):  # fmt: skip
        assert get_judge(setting).signature == CascadeJudge("openai:m").signature
    path.write_text("name: cascade\nsecond: openai:m\nmax_unread: 0.1\n")
    assert get_judge(str(path)).max_unread == 0.1


@pytest.mark.parametrize(
    ("setting", "arguments", "told"),
    [
        ("second", {"second": None}, "cascade:openai:MODEL"),
        ("second", {"second": "rules"}, "rules"),
        ("second", {"second": "cascade:openai:m"}, "cascade"),
        ("second", {"second": "opnai:m"}, "did you mean 'openai'"),
        ("first", {"first": "openai:m"}, "got openai:m"),
        ("max_unread", {"max_unread": 1.5}, r"got 1\.5"),
        ("max_unread", {"max_unread": True}, "got True"),
        ("max_disagreement", {"max_disagreement": "much"}, "got 'much'"),
    ],
)
def test_cascade_rejects(setting, arguments, told):
    with pytest.raises(SettingError, match=told) as raised:
        get_judge({"name": "cascade", "second": "openai:m", **arguments})
    assert raised.value.setting == setting


def test_cascade_rejects_unknown_settings():
    with pytest.raises(TypeError, match="'max_unred'; did you mean 'max_unread'"):
        get_judge({"name": "cascade", "second": "openai:m", "max_unred": 0.1})
    with pytest.raises(TypeError, match=r"second: .*'modle'"):
        get_judge({"name": "cascade", "second": {"name": "openai", "model": "m", "modle": "m"}})
    with pytest.raises(ValueError, match="task 'error_counts'"):
        CascadeJudge("openai:m").evaluate_now(CountingTask(), [READ])
