"""What holds for any text."""

import re
import textwrap
from functools import reduce
from operator import or_

from hypothesis import assume, given
from hypothesis import strategies as st

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.reading.engine import FindingEngine
from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.findings.reading.negation import ABSENT

WORDS = [
    *(
        "no",
        "without",
        "was",
        "not",
        "observed",
        "there",
        "is",
        "and",
        "or",
        "but",
        ",",
        "?",
        "(",
        ")",
        "possible",
    ),
    *(
        "pleural",
        "effusion",
        "nodules",
        "lung",
        "lungs",
        "calcification",
        "aorta",
        "coronary",
        "arteries",
        "heart",
    ),
    *(
        "enlarged",
        "lymph",
        "nodes",
        "ground-glass",
        "previous",
        "examination",
        "in",
        "the",
        "2.5",
        "mm",
        "liver",
        "diameter",
        "roanlm",
        "4m",
        "5x",
        "x",
        "grade",
        "hu",
        "%",
    ),
]
sentences = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
lexicons = st.sampled_from(["chest_ct", "chest_xray"])


@given(st.text(max_size=300), lexicons)
def test_extract_findings_any_text_is_read(text, lexicon):
    for finding in extract_findings(text, lexicon=lexicon):
        assert text[finding.start : finding.end] == finding.text


@given(st.lists(sentences, max_size=6), lexicons)
def test_extract_findings_places_of_findings(parts, lexicon):
    report = ". ".join(parts)
    for finding in extract_findings(report, lexicon=lexicon):
        assert report[finding.start : finding.end] == finding.text
        assert finding.text


@given(st.lists(sentences, min_size=1, max_size=6), lexicons)
def test_extract_findings_report_says_what_its_sentences_say(parts, lexicon):
    engine = FindingEngine(load_lexicon(lexicon))
    union = reduce(or_, engine.masks(parts))
    assert engine.masks([separator.join(parts) for separator in (". ", ".\n", "\n\n", "\n- ")]) == [union] * 4


@given(st.lists(sentences, max_size=6), st.integers(1, 40), lexicons)
def test_extract_findings_wrapping_changes_nothing(parts, width, lexicon):
    wrapped = "\n".join(textwrap.wrap(". ".join(parts), width, break_long_words=False, break_on_hyphens=False))
    # A line that starts with "no" or "there is" is read as a new statement, after an unfinished line excepted.
    assume(not re.search(r"\n(no|there)\b", wrapped))
    one, other = FindingEngine(load_lexicon(lexicon)).masks([wrapped, " ".join(wrapped.split())])
    assert one == other


@given(st.lists(sentences, max_size=6), lexicons)
def test_engine_memory_changes_nothing(parts, lexicon):
    report = ". ".join(parts)
    remembering = FindingEngine(load_lexicon(lexicon))
    forgetting = FindingEngine(load_lexicon(lexicon), memory=0)
    assert remembering.masks([report]) == remembering.masks([report]) == forgetting.masks([report])
    assert not forgetting._masks


@given(st.lists(sentences, max_size=6), lexicons)
def test_engine_masks_of_reports_together_are_those_of_each(reports, lexicon):
    together, alone = (FindingEngine(load_lexicon(lexicon)) for _ in range(2))
    assert together.masks(reports) == [alone.masks([report])[0] for report in reports]


@given(st.lists(sentences, max_size=6), lexicons)
def test_engine_masks_are_the_findings(parts, lexicon):
    report = ". ".join(parts)
    engine = FindingEngine(load_lexicon(lexicon))
    bits = {"present": 0, "uncertain": 1}
    expected = 0
    for finding in engine.extract(report):
        if finding.presence in bits:
            expected |= 1 << 2 * engine.lexicon.concepts.index(finding.concept) + bits[finding.presence]
    assert engine.masks([report]) == [expected]
    assert ABSENT not in bits.values()
