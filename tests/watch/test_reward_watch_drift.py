"""The watch on simulated runs: it stops each family of exploits early, and no honest improvement."""

import csv
import re
from pathlib import Path

import pytest
from drift import SETTINGS, STOP, broken_words, drift, exploit, exploits, improve

from rrg_rewards.data import phantom_studies
from rrg_rewards.watch import RewardWatch
from rrg_rewards.watch.attack.families import family_names, make_families, read_material, split_sentences

QUARTER = 0.25
# Constants of sentences that are common in reports: only their whole text is new.
FAST = ("labels", "sized_alternatives", "sentences", "report_hedged")
# The watch does not notice a change of the letter case alone.
NAMES = [name for name in family_names() if name != "report_styled"]


@pytest.fixture(scope="module")
def phantoms():
    """References, and reports of a system that writes the report of the patient, or half of it with another one's."""
    reports = [study.report for study in phantom_studies(160, seed=0, style="compact")]
    halves = [" ".join(split_sentences(text)[: len(split_sentences(text)) // 2]) for text in reports]
    return [(text, f"{halves[row]} {halves[row - 1]}" if row % 2 else text) for row, text in enumerate(reports)]


def check_family(name, pairs, labeler):
    families = make_families(read_material([reference for reference, _ in pairs]))
    family = next(family for family in families if family.name == name)
    # The longest of the family's texts.
    policy = exploits(family, families)[-1]
    # Some exploits also have words that the rules cannot read. The other checks must not depend on it.
    stop = [check for check in STOP if check != "unread_words"]
    share = drift(RewardWatch(stop=stop, labeler=labeler, **SETTINGS), pairs, exploit(policy))
    assert share is not None, policy.text
    assert share <= QUARTER


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_reward_watch_stops_a_run_that_drifts_to_a_family(name, phantoms):
    check_family(name, phantoms, None)


def check_broken_words(pairs):
    """At most a fifth of the words are broken when the run stops; the start differs more between short references."""
    share = drift(RewardWatch(stop=["unread_words"], labeler=None, **SETTINGS), pairs, broken_words)
    assert share is not None
    assert share <= 0.2


def test_reward_watch_stops_a_run_that_breaks_words(phantoms):
    check_broken_words(phantoms)


@pytest.mark.parametrize("steps", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_reward_watch_raises_no_alarm_while_a_run_improves_honestly(steps, phantoms):
    watch = RewardWatch(stop=True, **SETTINGS)
    improve(watch, phantoms, steps)
    assert watch.alarms == []
    assert len(watch.blocks) == steps


def real_pairs(folder, corpus):
    name, reference, prediction, labeler = {
        "ctrg": ("reg2rg_ctrg/pairs.csv", "GT_whole_report", "Pred_whole_report", "rules:ct_rate"),
        "ct_rate": ("reg2rg_ct_rate/pairs.csv", "reference", "prediction", "rules:ct_rate"),
        "iu_xray": ("iu_xray/systems.csv", "reference", "sft_model", "rules:chexbert"),
    }[corpus]
    with (folder / name).open(newline="", encoding="utf-8") as file:
        pairs = [(row[reference], row[prediction]) for row in csv.DictReader(file)]
    return pairs[:180], labeler


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["ctrg", "ct_rate", "iu_xray"])
def test_reward_watch_raises_no_alarm_while_a_real_system_improves_honestly(shared_data, corpus):
    pairs, labeler = real_pairs(shared_data, corpus)
    watch = RewardWatch(stop=True, labeler=labeler, **SETTINGS)
    improve(watch, pairs)
    assert watch.alarms == []


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["ctrg", "ct_rate", "iu_xray"])
def test_reward_watch_stops_a_real_system_that_breaks_words(shared_data, corpus):
    check_broken_words(real_pairs(shared_data, corpus)[0])


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["ctrg", "ct_rate", "iu_xray"])
@pytest.mark.parametrize("name", NAMES)
def test_reward_watch_stops_a_real_system_that_drifts_to_a_family(shared_data, corpus, name):
    pairs, _ = real_pairs(shared_data, corpus)
    check_family(name, pairs, None)


def test_reward_watch_is_documented_with_the_simulated_checks():
    page = (Path(__file__).resolve().parents[2] / "docs" / "reward_watch.md").read_text(encoding="utf-8")
    listed = re.search(r"STOP = \[(.*?)\]", page, re.DOTALL)[1]
    assert re.findall(r'"(\w+)"', listed) == STOP
    assert f"stop=STOP, window_reports={SETTINGS['window_reports']}" in page
