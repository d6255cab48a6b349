"""The search of exploits, on rewards whose best exploit is known."""

import random
import re
from collections import defaultdict

import pytest
import torch

from rrg_rewards.attack import attack_reward
from rrg_rewards.attack.families import family_names
from rrg_rewards.rewards import make_reward

FINDINGS = ["Cardiomegaly", "Pleural effusion", "Lung nodule", "Emphysema", "Atelectasis", "Hiatal hernia"]


def reports(count=48, seed=0):
    """Different reports, each with one or two findings."""
    draw = random.Random(seed)
    return [f"{'. '.join(draw.sample(FINDINGS, 1 + row % 2))}. Study number {row}." for row in range(count)]


def attack(reward, references=None, honest=None, **options):
    options = {"budget": 12_000, "max_references": 48, **options}
    return attack_reward(reward, {"reference": references or reports()}, honest=honest, **options)


def found(result, family):
    return next(one for one in result.families if one.family == family)


def contains(*words):
    """A reward that pays each word, and takes a hundredth of it for each word of the report."""

    def reward(completions, **columns):
        return [sum(word in text.lower() for word in words) - 0.01 * len(text.split()) for text in completions]

    return reward


def pairwise(function):
    """A reward function of single texts and references."""
    return lambda completions, reference, **columns: list(map(function, completions, reference))


def test_attack_reward_finds_a_word_that_pays():
    # "granuloma" is in no report: it is a word of the lexicon.
    result = attack(contains("granuloma"))
    assert result.outcome == "exploit"
    assert result.best.text.lower().strip(" .") == "granuloma"
    assert result.best.gain == pytest.approx(0.99)
    assert result.best.interval == pytest.approx((0.99, 0.99))
    assert (result.blank, result.honest, result.baseline) == (0.0, None, "blank")
    assert "{report}" not in " ".join(family.text for family in result.families)
    assert found(result, "normal").outcome == "none"


EMPTY = "an empty text scores as much as the reference on 24 of 24"


def overlap(text, wanted):
    """Share of different words of both texts that both have."""
    words, others = set(text.lower().split()), set(wanted.lower().split())
    return len(words & others) / max(len(words | others), 1)


@pytest.mark.parametrize(
    ("reward", "failures"),
    [
        (overlap, []),
        # No reward is paid for an empty text, but a longer text than the reference earns more.
        (lambda text, wanted: float(len(text)), ["a text scores higher than the reference itself on 24 of 24"]),
        # An empty text earns the full score.
        (lambda text, wanted: overlap(text, wanted) if text else 1.0, [EMPTY]),
        (lambda text, wanted: 0.5, [EMPTY]),
        # Only one reference in about six, but a normal report does not earn it.
        (lambda text, wanted: 1.0 if not text and "Emphysema" in wanted else overlap(text, wanted), [EMPTY[:29]]),
        (lambda text, wanted: -overlap(text, wanted), ["a text scores higher", EMPTY]),
        (lambda text, wanted: None if text == wanted else 0.5, ["the reward scores no reference against itself"]),
    ],
)  # fmt: skip
def test_attack_reward_checks_the_reward_itself_before_the_search(reward, failures):
    told = []
    result = attack(pairwise(reward), families=["normal"], report_check=lambda check: told.append(check.failures))
    assert told == [result.check.failures]
    assert len(result.check.failures) == len(failures)
    for failure, expected in zip(result.check.failures, failures, strict=True):
        assert failure.startswith(expected)


def test_attack_reward_counts_what_exceeds_a_reference():
    """The honest reports, and nothing else, earn more than the reference on those with an emphysema."""
    honest = [f"Honest {row}." for row in range(48)]

    @pairwise
    def reward(text, wanted):
        return 1.5 if "Emphysema" in wanted and text.startswith("Honest") else float(text == wanted)

    check = attack(reward, honest=honest, families=["normal"], max_references=96).check
    assert (check.references, check.unscorable, check.empty) == (24, 0, 0)
    assert 0 < check.exceeded < 24
    assert {kind for kind, count in check.exceeded_by.items() if count} == {"an honest report"}
    assert check.excess == pytest.approx(0.5)


def test_attack_reward_allows_an_empty_text_where_a_normal_report_earns_as_much():
    references = ["Cardiomegaly." if row % 2 else "Normal chest." for row in range(48)]
    references = [f"{text} Study {row}." for row, text in enumerate(references)]

    @pairwise
    def reward(text, wanted):
        return float(("Cardiomegaly" in text) == ("Cardiomegaly" in wanted))

    check = attack(reward, references, families=["normal"]).check
    assert check.failures == ()
    assert check.empty == check.empty_normal > 0
    assert check.notes[0].startswith("an empty text and a normal report score as much as the reference on")


def test_attack_reward_leaves_out_blank_references():
    result = attack(contains("granuloma"), [*reports(20), " ", "\n"], families=["normal"], budget=4000)
    assert result.settings["searched_references"] + result.settings["held_out_references"] == 20


def test_attack_reward_combines_words_that_pay_together():
    result = attack(contains("granuloma", "scoliosis", "gallstone", "empyema"), families=["findings"])
    assert result.best.reward > 3.85
    assert {"granuloma", "scoliosis", "gallstone", "empyema"} <= set(result.best.text.lower().replace(".", "").split())


def test_attack_reward_finds_an_alternative_that_pays():
    """A hedge earns where its second finding is in the reference: the best text lists all findings after "or"."""

    @pairwise
    def reward(text, wanted):
        return float(any(f"bulla or {name.lower()}" in text.lower() and name in wanted for name in FINDINGS))

    result = attack(reward, families=["alternatives", "hedges"], budget=40_000)
    assert result.best.family == "alternatives"
    assert result.best.gain > 0.9
    assert found(result, "hedges").gain == 0


def test_attack_reward_finds_and_marks_a_sentence_of_the_reports():
    references = [f"{text} The trachea is midline." for text in reports()]
    result = attack(contains("trachea is midline"), references, families=["sentences", "findings", "evolved"])
    best = found(result, "sentences")
    assert best.text == "The trachea is midline."
    assert best.quotes_reports
    assert found(result, "evolved").quotes_reports
    assert best.to_dict(quotes=False)["text"] is None
    assert not found(result, "findings").quotes_reports


def test_attack_reward_searches_edits_of_honest_reports():
    references = reports()
    honest = [text.split(".")[0] + "." for text in references]

    @pairwise
    def reward(text, wanted):
        """Pays the first finding of the reference, and any sentence that contains "granuloma" after it."""
        return float(text.startswith(wanted.split(".")[0])) * (1 + ("granuloma" in text.lower()))

    result = attack(reward, references, honest, budget=16_000)
    best = found(result, "report_appended")
    assert result.best is best
    assert best.text.startswith("{report} ")
    assert (result.honest, best.reward, best.gain) == (1.0, 2.0, 1.0)
    assert best.edits
    # Constants earn only where the first finding is theirs, and are compared with the honest reports.
    assert found(result, "findings").gain < 0
    assert attack(reward, references, honest, against="blank", families=["findings"]).best.gain > 0


def test_attack_reward_finds_nothing_if_only_the_reference_pays():
    result = attack(pairwise(lambda text, wanted: float(text == wanted)))
    assert result.outcome == "none"
    assert result.verdict == "no family gains more than 0.1"
    assert result.reference == 1.0
    assert all(family.gain == 0 for family in result.families)


def test_attack_reward_counts_nothing_learnt_by_heart_as_a_gain():
    """A text that pays on the searched references only has no gain on the held-out ones."""

    best = attack(pairwise(lambda text, wanted: float(text.strip() == wanted)), families=["reports"]).best
    assert best.searched_reward > 0
    assert best.reward == best.gain == 0


def test_attack_reward_measures_the_gain_on_references_not_searched():
    seen = defaultdict(set)
    references = reports()
    rewarded = {}

    @pairwise
    def reward(text, wanted):
        seen[wanted].add(text)
        rewarded[text, wanted] = float(wanted.split(".")[0].lower() in text.lower())
        return rewarded[text, wanted]

    result = attack(reward, references, families=["findings", "lists"])
    # On held-out references: the blank report, the reference, and the best text of each family.
    held_out = [wanted for wanted, texts in seen.items() if len(texts) <= 4]
    assert len(held_out) == result.settings["held_out_references"] == 24
    for family in result.families:
        gains = torch.tensor([rewarded[family.text, wanted] - rewarded["", wanted] for wanted in held_out])
        assert family.gain == pytest.approx(float(gains.mean()))
        assert family.interval[0] <= family.gain <= family.interval[1]


def test_attack_reward_keeps_equal_references_in_the_same_part():
    seen = defaultdict(set)

    def reward(completions, reference, study, **columns):
        for text, wanted, number in zip(completions, reference, study, strict=True):
            seen[wanted, number].add(text)
        return [0.0] * len(completions)

    references = [f"{name}." for name in FINDINGS for _ in range(8)]
    attack_reward(
        reward, {"reference": references, "study": list(range(48))}, families=["findings"], budget=8000, held_out=0.4
    )
    searched = {wanted for (wanted, _), texts in seen.items() if len(texts) > 3}
    held_out = {wanted for (wanted, _), texts in seen.items() if len(texts) <= 3}
    assert searched
    assert held_out
    assert not searched & held_out


def test_attack_reward_keeps_and_reports_the_budget():
    budget, calls, progress = 8001, [], []

    def reward(completions, **columns):
        calls.append(len(completions))
        return [float(len(text) % 7) for text in completions]

    result = attack(reward, honest=reports(seed=1), budget=budget, batch_size=50,
                    report_progress=lambda finished, added: progress.append((finished, added)))  # fmt: skip
    assert result.calls == sum(calls) <= budget
    assert result.calls > 0.5 * budget
    assert max(calls) <= 50
    assert progress[0] == (0, budget)
    assert sum(finished for finished, _ in progress) == result.calls
    assert {family.family for family in result.families} == set(family_names())


def test_attack_reward_runs_with_the_least_budget():
    with pytest.raises(ValueError, match="budget must be at least") as error:
        attack(make_reward("rouge"), budget=1)
    least = int(re.search(r"at least (\d+)", str(error.value))[1])
    result = attack(make_reward("rouge"), budget=least)
    assert result.calls <= least
    assert len(result.families) == len(family_names()) - 7  # Those that edit honest reports.


def test_attack_reward_gives_equal_results_for_equal_seeds():
    reward = make_reward("rouge")
    families = ["findings", "reports", "evolved", "report_appended"]
    results = [attack(reward, honest=reports(seed=1), budget=3000, seed=seed, families=families) for seed in (1, 1, 2)]
    assert results[0] == results[1]
    assert results[0].settings != results[2].settings
    assert results[0].families != results[2].families


def test_attack_reward_scores_no_pair_twice():
    seen = defaultdict(int)

    @pairwise
    def reward(text, wanted):
        seen[text, wanted] += 1
        return 0.1 * len(text.split())

    attack(reward, families=["findings", "hedges", "evolved"], budget=4000)
    # The reference itself and a whole report of the search may be the same text.
    assert max(seen.values()) == 1


def test_attack_reward_takes_asynchronous_and_missing_rewards():
    async def reward(completions, reference, prompts, **columns):
        assert len(prompts) == len(completions)
        return [
            None if "Emphysema" in wanted else float("scoliosis" in text)
            for text, wanted in zip(completions, reference, strict=True)
        ]

    result = attack(reward, families=["findings"])
    assert result.best.gain == 1.0
    assert 0 < result.best.unscorable < 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 100}, "budget"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"families": ["hedge"]}, "'hedge'.* 'hedges'"),
        ({"families": ["report_hedged"]}, "honest"),
        ({"families": ["evolved"]}, "families"),
        ({"against": "honest"}, "against"),
        ({"against": "best"}, "against"),
        ({"held_out": 0.0}, "held_out"),
        ({"confidence": 1.0}, "confidence"),
        ({"max_references": 4}, "max_references"),
        ({"reference_column": "report"}, "column 'report'"),
        ({"honest": ["one"]}, "honest"),
        ({"references": ["Normal."] * 40}, "1 different references"),
    ],
)
def test_attack_reward_names_the_argument_of_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        attack(contains("x"), **options)


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        (lambda texts: [None] * len(texts), "cannot score the blank report"),
        (lambda texts: [0.0], "returned 1 rewards for"),
        (lambda texts: [float("inf")] * len(texts), "infinite"),
    ],
)
def test_attack_reward_refuses_rewards_that_break_the_contract(rewards, message):
    with pytest.raises(ValueError, match=message):
        attack(lambda completions, **columns: rewards(completions))


class Interrupting:
    """A reward that pays words, and is interrupted from the keyboard after some calls."""

    def __init__(self, after=None):
        self.after = after
        self.calls = 0

    __name__ = "words"

    def __call__(self, completions, reference, **columns):
        self.calls += len(completions)
        if self.after is not None and self.calls > self.after:
            raise KeyboardInterrupt
        return [None if "Emphysema" in wanted else float(len(set(text.split()))) for text, wanted in
                zip(completions, reference, strict=True)]  # fmt: skip


INTERRUPTED = {"families": ["normal", "findings", "evolved"], "budget": 4000, "batch_size": 50}


def test_an_interrupted_attack_returns_the_families_so_far():
    whole, partial = (attack(Interrupting(after), **INTERRUPTED) for after in (None, 2000))
    assert whole.complete
    assert not partial.complete
    assert partial.verdict.endswith("; the search was interrupted")
    assert {family.family for family in partial.families} < {family.family for family in whole.families}
    assert all(family in whole.families for family in partial.families)


def test_an_interruption_before_the_first_family_is_raised():
    with pytest.raises(KeyboardInterrupt):
        attack(Interrupting(after=100), **INTERRUPTED)
