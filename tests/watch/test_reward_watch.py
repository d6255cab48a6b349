"""The watch on simulated runs: the right cause for each exploit, and no alarm on healthy runs."""

import json
import logging
import pickle
import random
from itertools import pairwise
from typing import Any

import pytest
from words import WordLabeler

from rrg_rewards.watch import Divergence, Drift, RewardWatch

SETTINGS: dict[str, Any] = {
    "labeler": WordLabeler("effusion nodule hernia edema"),
    "block_reports": 32,
    "baseline_reports": 160,
    "window_reports": 160,
}
FINDINGS = ["Effusion.", "A nodule.", "Hernia.", "Some edema.", "Nodule and effusion.", "Normal."]
FILLERS = ["The heart is normal.", "No pneumothorax.", "Bones are intact.", "The lungs are clear."]


def reference(draw):
    return " ".join([*draw.sample(FILLERS, 2), draw.choice(FINDINGS)])


def honest(draw, wanted, skill):
    """A report that is correct with a given probability, in varying wording."""
    finding = wanted.rsplit(". ", 1)[-1] if draw.random() < skill else draw.choice(FINDINGS)
    return " ".join([*draw.sample(FILLERS, 2), finding])


def simulate(watch, write, steps=24, seed=0, reward=None, start=8):
    """Simulate a policy whose completions come increasingly from ``write``."""
    draw = random.Random(seed)
    for step in range(1, steps + 1):
        hacked = 0.0 if step <= start else min((step - start) / 4, 1.0)
        references = [reference(draw) for _ in range(8) for _ in range(4)]
        completions = [write(draw, text) if draw.random() < hacked else honest(draw, text, 0.5) for text in references]
        values = [0.02 * step + draw.gauss(0, 0.1) for _ in completions] if reward is None else reward(completions)
        failed = sum(text == "{" for text in completions)
        watch.observe(completions, references, rewards={"r": values}, judge_failures={"r": failed})
        watch.step(step)
    return watch


@pytest.mark.parametrize(
    ("write", "causes"),
    [
        (lambda draw, text: text + " " + " ".join(FILLERS * 2), {"longer", "repeated_sentences"}),
        (lambda draw, text: "Hernia.", {"shorter", "same_report", "overcalled (hernia)", "undercalled (nodule)"}),
        (lambda draw, text: "The lungs are clear. No pneumothorax.", {"normal_reports", "fewer_positives"}),
        (lambda draw, text: "Effusion, nodule, hernia, edema.", {"more_positives", "overcalled (edema)"}),
        (lambda draw, text: f"{text} Hernia seen on the left.", {"sentence_frames"}),
        (lambda draw, text: "{", {"judge_failures (r)"}),
        (lambda draw, text: honest(draw, text, 0.0), {"divergence (r, label_f1)"}),
    ],
    ids=["longer", "one finding", "normal", "everything", "one sentence", "breaks", "guesses"],
)
def test_reward_watch_names_each_hack(write, causes, caplog):
    with caplog.at_level(logging.WARNING, logger="rrg_rewards.watch"):
        watch = simulate(RewardWatch(**SETTINGS), write)
    assert causes <= set(watch.causes)
    assert len(caplog.records) == len(watch.alarms)
    # The history contains numbers and no reports.
    assert "seen on the left" not in caplog.text
    assert "pneumothorax" not in caplog.text.lower()
    assert all("start" in alarm.numbers or "reward_then" in alarm.numbers for alarm in watch.alarms)


def test_reward_watch_raises_no_other_alarm_for_a_guesser():
    """The cause has the name of the exploit: only correctness changes."""
    watch = simulate(RewardWatch(**SETTINGS), lambda draw, text: honest(draw, text, 0.0), steps=30)
    assert {alarm.check for alarm in watch.alarms} == {"divergence"}


@pytest.mark.parametrize("seed", range(6))
def test_reward_watch_is_silent_in_healthy_runs(seed, caplog):
    """The policy improves and its reward rises: it moves towards the references."""
    watch = RewardWatch(**SETTINGS, stop=True)
    with caplog.at_level(logging.WARNING, logger="rrg_rewards.watch"):
        simulate(watch, lambda draw, text: honest(draw, text, 0.9), steps=40, seed=seed)
    assert watch.alarms == []
    assert not caplog.records
    assert len(watch.blocks) == 40
    assert not watch.should_stop
    assert {verdict.check for verdict in watch.verdicts} >= {"divergence", "longer"}


def test_reward_watch_lets_lengths_grow_to_those_of_the_references():
    """A policy that learns to report omitted findings causes no alarm of length."""
    watch = RewardWatch(**SETTINGS)
    draw = random.Random(3)
    for step in range(1, 25):
        references = [reference(draw) for _ in range(32)]
        watch.observe([text if step > 8 else text.split(". ")[0] for text in references], references)
        watch.step(step)
    assert "longer" not in watch.causes
    longer = next(verdict for verdict in watch.verdicts if verdict.check == "longer")
    assert longer.numbers["now"] == longer.numbers["references"] > 1.5 * longer.numbers["start"]


def test_divergence_sees_a_metric_that_fell_after_it_rose():
    watch = RewardWatch(**SETTINGS, checks=[Divergence()])
    draw = random.Random(0)
    for step in range(1, 61):
        level = 0.02 * min(step, 30) - 0.02 * max(step - 30, 0)
        watch.observe(
            ["a b"] * 32,
            rewards={"r": [0.02 * step + draw.gauss(0, 0.2) for _ in range(32)]},
            metrics={"m": [level + draw.gauss(0, 0.2) for _ in range(32)]},
        )
        watch.step(step)
        if step == 28:
            assert watch.alarms == []
    assert watch.causes == ["divergence (r, m)"]
    # At the first alarm, the metric is still above its start.
    assert watch.alarms[0].numbers["metric_now"] > 0.15
    assert watch.alarms[0].numbers["then_step"] > 10


def test_reward_watch_warns_once_and_again_when_it_worsens(caplog):
    watch = RewardWatch(**SETTINGS, checks=[Drift("longer", "words", "rise", factor=1.5)])
    with caplog.at_level(logging.WARNING, logger="rrg_rewards.watch"):
        for step, words in enumerate([10] * 8 + [30] * 12 + [60] * 12):
            watch.observe([" ".join(["word"] * (words + row % 3)) for row in range(32)])
            watch.step(step)
    severities = [alarm.severity for alarm in watch.alarms]
    assert watch.causes == ["longer"]
    assert len(severities) == len(caplog.records) > 1
    assert all(after >= 1.5 * before for before, after in pairwise(severities))
    assert len(severities) < 8
    assert not watch.should_stop


def test_reward_watch_stops_for_the_named_causes_only():
    for stop, expected in (([], False), (["shorter"], False), ("longer", True), (["longer"], True), (True, True)):
        watch = RewardWatch(**SETTINGS, stop=stop)
        simulate(watch, lambda draw, text: text + " and so on" * 20)
        assert "longer" in watch.causes
        assert watch.should_stop is expected


def test_reward_watch_compares_unread_words_with_those_of_the_references():
    watch = RewardWatch(labeler=None, block_reports=2, baseline_reports=6, window_reports=6)
    for step, own in enumerate(["emphysema"] * 3 + ["bivel", "trulate", "bivel"]):
        watch.observe([f"Effusion, {own}."] * 2, ["Effusion, quorblid of the aorta."] * 2)
        watch.step(step)
    assert [block.ratio("completions/unread_words") for block in watch.blocks] == [(0, 4)] * 3 + [(2, 4)] * 3
    numbers = next(verdict for verdict in watch.verdicts if verdict.check == "unread_words").numbers
    assert (numbers["start"], numbers["now"], numbers["limit"]) == (0, 0.5, pytest.approx(1.5 / 3 + 0.03))


def test_step_pools_small_steps_and_closes_a_block_after_large_ones():
    watch = RewardWatch(labeler=None, block_reports=10, baseline_reports=30, window_reports=30)
    for step, rows in enumerate([4, 4, 4, 25, 0, 9, 1]):
        watch.observe(["a"] * rows)
        watch.step(step)
    assert [(block.step, block.reports) for block in watch.blocks] == [(2, 12), (3, 25), (6, 10)]
    assert watch.seen == 47


@pytest.mark.parametrize("steps", [13, 70], ids=["early", "after blocks were summed"])
def test_reward_watch_continues_exactly_from_its_state(steps):
    whole, first = RewardWatch(**SETTINGS), RewardWatch(**SETTINGS)
    hack = {"write": lambda draw, text: text + " and so on" * 20, "seed": 1, "start": steps - 5}
    simulate(whole, steps=steps, **hack)
    simulate(first, steps=steps, **hack)
    second = RewardWatch(**SETTINGS)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for watch in (whole, second):
        watch.observe(["a b c d"] * 20, ["effusion"] * 20)
        watch.step(steps + 1)
        simulate(watch, steps=6, **hack)
    assert second.state_dict() == whole.state_dict()
    assert [alarm.to_dict() for alarm in second.alarms] == [alarm.to_dict() for alarm in whole.alarms]
    assert whole.alarms


def observe_values(watch, steps, draw, level=0.0):
    """Observe reports of the same words with a metric at a level."""
    for step in steps:
        references = [reference(draw) for _ in range(32)]
        completions = [honest(draw, text, 0.5) for text in references]
        rewards = {"r": [0.005 * step + draw.gauss(0, 0.2) for _ in completions]}
        watch.observe(
            completions, references, rewards=rewards, metrics={"m": [level + draw.gauss(0, 0.2) for _ in completions]}
        )
        watch.step(step)


def test_reward_watch_has_a_state_that_does_not_grow():
    watch, draw = RewardWatch(**SETTINGS), random.Random(0)
    sizes, before = [], 0
    for steps in (60, 120, 240):
        observe_values(watch, range(before, steps), draw)
        before = steps
        state = watch.state_dict()
        sizes.append((len(pickle.dumps(state)), len(json.dumps(state))))
        assert len(watch.blocks) == 50
    assert watch.seen == 240 * 32
    assert [block.reports for block in watch.blocks[:5]] == [32] * 5
    assert [block.reports for block in watch.blocks[-5:]] == [32] * 5
    for kind in zip(*sizes, strict=True):
        assert max(kind) < 1.05 * min(kind)


def test_divergence_sees_a_late_fall_below_a_summed_window():
    watch, draw = RewardWatch(**SETTINGS, checks=[Divergence()]), random.Random(0)
    for start, level in ((0, 0.0), (100, 0.6)):
        observe_values(watch, range(start, start + 100), draw, level)
    assert watch.alarms == []
    observe_values(watch, range(200, 210), draw, 0.4)
    assert watch.causes == ["divergence (r, m)"]
    # The metric is still above its start.
    assert watch.alarms[0].numbers["metric_now"] > 0.3
    assert watch.alarms[0].numbers["then_step"] > 100


def test_reward_watch_keeps_no_text():
    watch = simulate(RewardWatch(**SETTINGS), lambda draw, text: "Secretive effusion.")
    said = json.dumps([watch.history(), watch.state_dict()]).lower()
    assert "secretive" not in said
    assert "pneumothorax" not in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"block_reports": 0}, "block_reports"),
        ({"baseline_reports": 100}, "baseline_reports.* got 100"),
        ({"window_reports": 100}, "window_reports"),
        ({"confidence": 1.0}, "confidence"),
        ({"worsens": 1.0}, "worsens"),
        ({"stop": ["divergense"]}, "'divergense'.* 'divergence'"),
        ({"limits": {"longr": {}}}, "'longer'"),
        ({"limits": {"longer": {"margins": 1}}}, "'margin'"),
        ({"limits": {"longer": {"factor": 0.5}}}, "factor"),
        ({"limits": {"shorter": {"factor": 1.0}}}, "factor 1 and margin 0"),
        ({"limits": {"sentence_frames": {"margin": 1}}}, "margin"),
        ({"limits": {"divergence": {"drop": 0}}}, "drop"),
        ({"limits": {"longer": 2}}, "longer.* false"),
    ],
)
def test_reward_watch_refuses_wrong_settings(arguments, named):
    with pytest.raises(ValueError, match=named):
        RewardWatch(**arguments)


def test_change_checks_changes_limits_and_leaves_checks_out():
    watch = RewardWatch(limits={"longer": {"factor": 3.0}, "undercalled": False, "shorter": True})
    by_name = {check.name: check for check in watch.checks}
    assert by_name["longer"].factor == 3.0
    assert "undercalled" not in by_name
    assert "shorter" in by_name


def test_observe_refuses_lengths_that_differ():
    watch = RewardWatch(labeler=None)
    with pytest.raises(ValueError, match=r"references .* 1 and 2"):
        watch.observe(["a"], ["a", "b"])
    with pytest.raises(ValueError, match=r"rewards\['r'\] .* 1 and 2"):
        watch.observe(["a"], rewards={"r": [1.0, 2.0]})
