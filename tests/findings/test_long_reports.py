"""The work of reading and comparing findings grows linearly with the length of a report."""

import pytest

from rrg_rewards.findings import Finding, abnormal_findings, compare_findings, extract_findings
from rrg_rewards.findings.comparing import matching
from rrg_rewards.findings.reading import merge_mentions
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from tests.helpers.operations import count_operations

# Twice the text may take little more than twice the work. The square of the length would be four times.
MOST = 2.3

SENTENCES = {
    "one word": "nodule ",
    "a list": "nodule, effusion, ",
    "a chain": "nodule and effusion ",
    "denials": "no nodule, ",
    "denials before": "nodule, no effusion was seen, ",
    "earlier": "in the previous examination there was a nodule, ",
    "places": "nodule in the right upper lobe, left lower lobe, ",
    "one place": "right upper lobe, ",
    "measures": "nodule of 5 x 4 mm ",
    "numbers": "12 x ",
    "statements": "a nodule of 5 mm is seen in the left lung, and both hila are not large, ",
    "unknown words": "the aorta is quorblid, ",
    "denied unknown words": "no quorblid, the lung is normal, ",
    "unnamed": "a strip shadow is seen in the left lung, the density is increased, ",
}
REPORTS = {
    "sentences": "A nodule of 5 mm is seen in the left lung. The largest is in the right lung. ",
    "lines": "Nodule\nEffusion\n",
    "headings": "Indication: cough. Findings: nodule. ",
    "interpretations": "An opacity is seen. It may be pneumonia. ",
}


def reading(text: str) -> int:
    engine = FindingEngine(load_lexicon("chest"), memory=0)
    return count_operations(lambda: engine.extract(text))


@pytest.mark.parametrize("name", [*SENTENCES, *REPORTS])
def test_reading_twice_the_text_takes_twice_the_work(name: str) -> None:
    # A sentence is cut at 2,000 characters. Both texts are shorter.
    text = (SENTENCES | REPORTS)[name]
    short, long = text * (900 // len(text)), text * (2 * (900 // len(text)))
    # The first run also fills the tables of phrases.
    reading(long)
    assert reading(long) < MOST * reading(short)


def report(sentences: int) -> str:
    """Return a report with that many sentences, each about another finding."""
    words = ("nodule", "mass", "cyst", "effusion", "consolidation")
    return " ".join(f"A {words[i % 5]} of {i + 2} mm is seen in the left lung." for i in range(sentences))


def findings(sentences: int) -> tuple[str, list[Finding]]:
    text = report(sentences)
    return text, extract_findings(text)


def test_comparing_twice_the_findings_takes_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both reports have more findings than match.
    monkeypatch.setattr(matching, "_MOST_FINDINGS", 20)
    work = {}
    for size in (60, 60, 120):
        ours = findings(size)[1]
        work[size] = count_operations(lambda ours=ours: compare_findings(ours, ours[::-1]))
    assert work[120] < MOST * work[60]


def test_merging_twice_the_mentions_takes_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # All mentions are different findings, and more than a mention is compared with.
    monkeypatch.setattr(merge_mentions, "_MOST_COMPARED", 10)
    work = {}
    for size in (60, 60, 120):
        text, mentions = findings(size)
        assert len(abnormal_findings(text, mentions)) == size
        work[size] = count_operations(lambda text=text, mentions=mentions: abnormal_findings(text, mentions))
    assert work[120] < MOST * work[60]


def test_only_the_first_findings_of_a_report_match() -> None:
    ours = findings(matching._MOST_FINDINGS + 1)[1]
    found = compare_findings(ours, ours)
    assert found.missing == found.false == (matching._MOST_FINDINGS,)
