"""The change of a finding since an earlier examination."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.reading.changes import is_compared, with_presence
from rrg_rewards.findings.reading.finding import Attributes

# The change of the first finding of each sentence.
CHANGES = {
    "new": """
        New left pleural effusion.
        Newly developed consolidation in the right lower lobe.
        Interval development of a right pneumothorax.
        The effusion is new since the prior examination.
        A 5 mm nodule in the right upper lobe, not present on the previous CT.
        A nodule, which was not seen previously, is present in the left lung.
        New-onset pulmonary edema.
        A left pneumothorax has developed.
        Interval appearance of a small right effusion.
        In the interval, there has been development of multiple nodules.
        Left pleural effusion; new since the prior study.
        New small effusion and a stable nodule.
        The chest tube was placed in the interval.
    """,
    "increased": """
        Left effusion, increased since the prior.
        Interval enlargement of the nodule.
        Worsening pulmonary edema.
        The nodule has grown since the last CT.
        The mass has enlarged.
        The nodule increased from 4 to 6 mm.
        The consolidation is more extensive than on the prior study.
        Interval worsening of the right effusion.
        The effusion is larger than before.
        Slightly increased right effusion.
        There has been interval progression of the consolidation.
        Growing nodule in the left lower lobe.
        Enlarging right upper lobe mass.
        The left pneumothorax is slightly worse.
        Again seen is a left effusion, which has increased.
        Persistent but worsening edema.
        Small nodule. It has increased in size since the prior study.
        Heart size has increased since the prior radiograph.
        The heart appears slightly more prominent in size than on the prior exam.
        Interstitial opacities, more conspicuous today.
        Increased size of the left pneumothorax.
        Increase in the number and size of the nodules.
        The left effusion has reaccumulated.
        Increased interstitial markings compared with the previous study.
    """,
    "decreased": """
        Improving pulmonary edema.
        The effusion has decreased.
        Left effusion has decreased in volume.
        The previously described effusion is smaller.
        Edema, slightly better than yesterday.
        Interval improvement in the right consolidation.
        Resolving pneumonia.
        The consolidation has partially resolved.
        Near complete resolution of the effusion.
        The nodule has shrunk since the prior study.
        The effusion is smaller than on the prior.
        Improved aeration of the left base with residual atelectasis.
        The pneumothorax has diminished in size.
        The effusion is reduced compared with the previous examination.
        The pneumothorax is nearly resolved.
    """,
    "stable": """
        Unchanged cardiomegaly.
        The nodule is stable in size.
        No significant interval change in the effusion.
        Small effusion, not significantly changed.
        The effusion is not increased.
        The nodule shows no growth since the prior.
        Nodule in the left lung without interval change.
        The consolidation persists.
        The heart remains enlarged.
        The effusion has not resolved.
        The nodule is the same size as before.
        Small effusion, similar to the prior study.
        No improvement of the consolidation.
        A 5 mm nodule. This is unchanged since the prior study.
        Several nodules, none of which are new.
    """,
    "resolved": """
        The effusion has resolved.
        The left pneumothorax is no longer seen.
        The previously seen nodule is not visualised.
        Interval resolution of the left effusion.
        Resolved pneumothorax.
        Effusion completely resolved.
        The consolidation has cleared.
        There is no longer a pneumothorax.
    """,
    None: """
        No new consolidation.
        No pneumothorax, unchanged.
        Small left effusion. No significant interval change.
        Small left effusion. New findings are described below.
        The patient is hemodynamically stable with a small effusion.
        Heart size is increased.
        Increased interstitial markings.
        Decreased lung volumes with atelectasis.
        The heart is larger than normal.
        Increased opacity in the left lower lobe.
        The liver has decreased density, consistent with steatosis.
        Nodules, the larger one is 5 mm.
        Enlarged lymph nodes in the mediastinum.
        Similar nodules are seen in the left lung.
        Increased thoracic kyphosis.
        Emphysema, more prominent in the upper lobes.
        Cardiomegaly is better seen on the lateral view.
        Wall thickness of the bronchi is increased compared to the left side.
        Nodules increasing in number towards the bases.
        Increased number of nodules in the right lung.
        Effusion in a newborn.
        Progressive massive fibrosis.
        Opacity, recommend follow-up to resolution.
        Worsening dyspnea with left effusion.
        Persistent left SVC.
        Nodule on high resolution CT.
    """,
}
SENTENCES = [(line.strip(), change) for change, lines in CHANGES.items() for line in lines.strip().splitlines()]


@pytest.mark.parametrize(("sentence", "change"), SENTENCES)
def test_change_of_sentence(sentence, change):
    finding = extract_findings(sentence)[0]
    assert finding.change == change
    if change is not None:
        assert (finding.presence == "absent") == (change == "resolved")


@pytest.mark.parametrize(
    ("sentence", "changes"),
    [
        ("Unchanged effusion and atelectasis.", ["stable", "stable"]),
        ("Unchanged bilateral effusions and bibasilar atelectasis.", ["stable", "stable"]),
        ("New consolidation, effusion and atelectasis.", ["new", "new", "new"]),
        ("Left effusion and right atelectasis are unchanged.", ["stable", "stable"]),
        ("Effusion, edema and left atelectasis have increased.", ["increased", "increased", "increased"]),
        ("Effusion and atelectasis, unchanged.", ["stable", "stable"]),
        # A degree begins another statement.
        ("Stable cardiomegaly and mild edema.", ["stable", None]),
        ("Effusion and new atelectasis are seen.", [None, "new"]),
        ("Stable cardiomegaly with new effusion.", ["stable", "new"]),
        ("Right effusion is stable and left effusion has increased.", ["stable", "increased"]),
        ("Stable effusion without new consolidation.", ["stable", None]),
    ],
)
def test_change_of_each_finding(sentence, changes):
    assert [finding.change for finding in extract_findings(sentence)] == changes


def test_change_beside_a_former_size():
    finding = extract_findings("The nodule increased from 4 to 6 mm.")[0]
    assert (finding.size_mm, finding.change) == (6.0, "increased")


def test_change_of_an_open_finding_needs_an_earlier_examination():
    grown, large = (
        extract_findings(f"The bladder wall is thickened, {text}.", open_findings=True)[0]
        for text in ("increased since the prior study", "increased")
    )
    assert (grown.change, large.change) == ("increased", None)


def test_new_lesion_is_not_one_that_was_there_before():
    report = "New nodule in the right upper lobe. Unchanged nodule in the right upper lobe."
    assert [finding.change for finding in abnormal_findings(report, extract_findings(report))] == ["new", "stable"]


@pytest.mark.parametrize("report", ["Stable effusion. Worsening effusion.", "Worsening effusion. Stable effusion."])
def test_change_of_repeated_mentions_is_that_of_most_concern(report):
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert finding.change == "increased"


def test_is_compared():
    assert is_compared(["increased", "since", "the", "prior", "study"])
    assert not is_compared(["increased", "compared", "to", "the", "left", "side"])
    assert is_compared(["increased", "compared", "to", "the", "left", "side", "on", "the", "prior", "study"])


@pytest.mark.parametrize(
    ("change", "is_absent", "expected"),
    [
        ("new", True, None),
        ("stable", True, None),
        ("resolved", True, "resolved"),
        ("resolved", False, "decreased"),
        ("new", False, "new"),
        (None, False, None),
    ],
)
def test_with_presence(change, is_absent, expected):
    attributes = Attributes(severity="mild", change=change)
    assert with_presence(attributes, is_absent, ["effusion"], 0) == Attributes(severity="mild", change=expected)
