"""Details of the words that rules have not read, and their warning."""

import pickle
import warnings

import pytest
import torch

from rrg_rewards.findings import read_findings
from rrg_rewards.metrics import CRIMSON, unread
from rrg_rewards.metrics.unread import UnreadWarning, unread_shares, unread_words, warn_of_unread


def covered(*reports):
    return tuple(read_findings(report).coverage for report in reports)


@pytest.fixture
def silent(monkeypatch):
    """A process that has not warned."""
    for name in ("has_warned", "has_warned_of_ages"):
        monkeypatch.setattr(unread._Warned, name, False)


def test_unread_shares_are_nan_where_the_coverage_is_not_known():
    shares = unread_shares([covered("Quorblid of the aorta.", "Normal aorta."), None])
    torch.testing.assert_close(shares["unread_reference"], torch.tensor([0.5, torch.nan]).double(), equal_nan=True)
    torch.testing.assert_close(shares["unread_candidate"], torch.tensor([0.0, torch.nan]).double(), equal_nan=True)
    assert {name: values.shape for name, values in unread_shares([]).items()} == {
        "unread_reference": (0,),
        "unread_candidate": (0,),
    }


def test_unread_words_name_the_report():
    pair = covered("Quorblid of the aorta. Vextramal.", "Effusion, plondrastic.")
    assert unread_words(pair) == "reference: Quorblid, Vextramal; candidate: plondrastic"
    assert unread_words(covered("Effusion.", "Effusion.")) == unread_words(None) == ""


@pytest.mark.usefixtures("silent")
def test_warn_of_unread_names_the_first_report_and_warns_once():
    german, english = "Kleiner Erguss rechts basal, Herz deutlich breiter.", "Small effusion."
    pairs = [None, covered(english, english), covered(english, german), covered(german, german)]
    with pytest.warns(UnreadWarning, match=r"crimson: the rules could not read \d of \d words of preds\[2\].*English"):
        warn_of_unread("crimson", pairs, [True] * len(pairs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unread("crimson", pairs, [True] * len(pairs))


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    "report",
    [
        # Half of the words, and three words.
        "Quorblid vextramal effusion. Emphysema.",
        "Quorblid vextramal plondrastic.",
    ],
)
def test_warn_of_unread_needs_more_than_half_of_four_words(report):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unread("crimson", [covered(report, report)], [True])


@pytest.mark.usefixtures("silent")
def test_warn_of_unread_tells_of_a_pair_without_a_score():
    with pytest.warns(UnreadWarning, match=r"1 of 2 words of target\[1\], so its pair has no score"):
        warn_of_unread("crimson", [covered("Effusion.", ""), covered("Quorblid of the aorta.", "")], [True, False])


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("age", ["c1", "sixty", -5, 400])
def test_crimson_by_rules_warns_once_of_an_age_that_is_not_read(age):
    preds = target = ["Effusion."] * 3
    with pytest.warns(UnreadWarning, match=rf"^crimson: 1 of 2 ages are not read, such as '{age}', and count as"):
        CRIMSON().score(preds, target, age=["066Y", age, None])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CRIMSON().score(preds, target, age=[age, 66, ""])


def test_unread_shares_of_crimson_survive_pickling_and_add_up():
    target = ["Quorblid of the aorta.", "Quorblid. Effusion.", "Effusion.", "Normal heart.", None]
    preds = ["Normal aorta.", "Effusion.", "Effusion, vextramal.", "Normal heart.", "Effusion."]
    halves = [CRIMSON(), CRIMSON()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadWarning)
        for half, rows in zip(halves, (slice(0, 2), slice(2, 5)), strict=True):
            half.update(preds[rows], target[rows])
    again = pickle.loads(pickle.dumps(halves[0]))
    again.unread_sums = again.unread_sums + halves[1].unread_sums
    assert again.unread_sums.tolist() == [1, 0.5, 4]
    assert again.statistics()["unread_reference"] == 0.25
