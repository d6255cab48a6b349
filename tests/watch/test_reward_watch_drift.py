"""The watch on simulated runs: it stops each family of exploits early, and no honest improvement."""

import csv
import functools
import re
from pathlib import Path

import pytest
from drift import (
    EDITS,
    GROUP,
    QUARTER,
    SETTINGS,
    STOP,
    STUDIES,
    broken_words,
    drift,
    edited,
    exploit,
    exploits,
    improve,
    phantom_pairs,
)

from rrg_rewards.attack.families import family_names, make_families, read_material
from rrg_rewards.watch import RewardWatch, reward_watch

# Constants of sentences that are common in reports: only their whole text is new.
FAST = ("labels", "sized_alternatives", "sentences", "report_hedged")
CORPORA = ("ctrg", "ct_rate", "iu_xray")
# Drifts that no family of texts contains, of one kind each, and the check that notices them.
FAST_EDITS = {
    "one sentence is doubled": "repeating_reports",
    "reports of 4 frames": "sentence_frames",
}


# On real reports, these are noticed after more than a quarter of the drift.
LATE = {"reports of 8 frames", "report_hedged"}
# Changes of letter case are counted nowhere.
FAMILIES = [name for name in family_names() if name != "report_styled"]


@pytest.fixture(scope="module", autouse=True)
def counted_once():
    """Count each text once: the runs of a corpus draw the same honest reports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reward_watch, "count_text", functools.cache(reward_watch.count_text))
        yield


@pytest.fixture(scope="module")
def phantoms():
    """References, and reports of a system."""
    return phantom_pairs()


@functools.cache
def families_of(references):
    return make_families(read_material(references))


def check_family(name, pairs, labeler):
    families = families_of(tuple(reference for reference, _ in pairs))
    family = next(family for family in families if family.name == name)
    # The longest of the family's texts.
    policy = exploits(family, families)[-1]
    # Some exploits also have words that the rules cannot read. The other checks must not depend on it.
    stop = [check for check in STOP if check != "unread_words"]
    share = drift(RewardWatch(stop=stop, labeler=labeler, **SETTINGS), pairs, exploit(policy))
    assert share is not None, policy.text
    assert share <= QUARTER


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
)
def test_reward_watch_stops_a_run_that_drifts_to_a_family(name, phantoms):
    check_family(name, phantoms, None)


def check_edit(name, pairs, stop):
    share = drift(RewardWatch(stop=stop, labeler=None, **SETTINGS), pairs, edited(EDITS[name]))
    assert share is not None
    assert share <= QUARTER


@pytest.mark.parametrize(("name", "check"), FAST_EDITS.items())
def test_reward_watch_stops_a_run_that_drifts_to_edited_reports(name, check, phantoms):
    check_edit(name, phantoms, [check])


def check_broken_words(pairs):
    """At most a fifth of the words are broken when the run stops; the start differs more between short references."""
    share = drift(RewardWatch(stop=["unread_words"], labeler=None, **SETTINGS), pairs, broken_words)
    assert share is not None
    assert share <= 0.2


def test_reward_watch_stops_a_run_that_breaks_words(phantoms):
    check_broken_words(phantoms)


@pytest.mark.parametrize("skill", [0.8, 0.0], ids=["improves", "does not change"])
@pytest.mark.parametrize("steps", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_reward_watch_raises_no_alarm_on_an_honest_policy(steps, skill, phantoms):
    watch = RewardWatch(stop=True, **SETTINGS)
    improve(watch, phantoms, steps, skill=skill)
    assert watch.alarms == []
    # Blocks of a long run are summed.
    assert sum(block.reports for block in watch.blocks) == steps * STUDIES * GROUP


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
@pytest.mark.parametrize("skill", [0.8, 0.0], ids=["improves", "does not change"])
@pytest.mark.parametrize("corpus", CORPORA)
def test_reward_watch_raises_no_alarm_on_a_real_system(shared_data, corpus, skill):
    pairs, labeler = real_pairs(shared_data, corpus)
    watch = RewardWatch(stop=True, labeler=labeler, **SETTINGS)
    improve(watch, pairs, skill=skill)
    assert watch.alarms == []


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", sorted(EDITS.keys() - LATE))
def test_reward_watch_stops_a_real_system_that_drifts_to_edited_reports(shared_data, corpus, name):
    check_edit(name, real_pairs(shared_data, corpus)[0], [check for check in STOP if check != "unread_words"])


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
def test_reward_watch_stops_a_real_system_that_breaks_words(shared_data, corpus):
    check_broken_words(real_pairs(shared_data, corpus)[0])


@pytest.mark.slow
@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in LATE])
def test_reward_watch_stops_a_real_system_that_drifts_to_a_family(shared_data, corpus, name):
    pairs, _ = real_pairs(shared_data, corpus)
    check_family(name, pairs, None)


def test_reward_watch_is_documented_with_the_simulated_checks():
    page = (Path(__file__).resolve().parents[2] / "docs" / "reward_design.md").read_text(encoding="utf-8")
    listed = re.search(r"STOP = \[(.*?)\]", page, re.DOTALL)[1]
    assert re.findall(r'"(\w+)"', listed) == STOP
    assert f"stop=STOP, window_reports={SETTINGS['window_reports']}" in page
