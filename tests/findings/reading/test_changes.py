"""The change of a finding since an earlier examination."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings
from rrg_rewards.findings.reading.changes import is_compared, with_presence
from rrg_rewards.findings.reading.finding import Attributes
from tests.helpers.tables import read_tables

TABLES = read_tables(__file__)

# The change of the first finding of each sentence.
SENTENCES = [
    (line.strip(), change) for change, lines in TABLES["changes"].items() for line in lines.strip().splitlines()
]


@pytest.mark.parametrize(("sentence", "change"), SENTENCES)
def test_change_of_sentence(sentence, change):
    finding = extract_findings(sentence)[0]
    assert finding.change == change
    if change is not None:
        assert (finding.presence == "absent") == (change == "resolved")


@pytest.mark.parametrize(("sentence", "changes"), TABLES["several_findings"])
def test_change_of_each_finding(sentence, changes):
    assert tuple(finding.change for finding in extract_findings(sentence)) == changes


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
