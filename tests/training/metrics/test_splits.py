"""Splits of graded reports and of mixtures: no reference is on two sides."""

import string

from hypothesis import given
from hypothesis import strategies as st

from rrg_rewards.data import ErrorRecord, GradedReport, grade_by_errors, graded_pairs
from rrg_rewards.schemas import get_scoring_system
from rrg_rewards.training.metrics.splits import report_key, split_by_reference

RADCLIQ = get_scoring_system("radcliq")
# Few reports, so that candidates are references elsewhere; in several writings of the same words.
texts = st.tuples(
    st.sampled_from(string.ascii_lowercase[:12]), st.sampled_from(["{} lobe", "{}  LOBE.", "{}\nlobe"])
).map(lambda drawn: drawn[1].format(drawn[0]))
errors = st.tuples(*[st.integers(0, 2)] * 6)
records = st.lists(
    st.one_of(
        st.builds(GradedReport, texts, texts, errors, st.just("judge")),
        st.builds(ErrorRecord, texts, texts, errors, st.just("made")),
        st.builds(lambda r, c, e, w: ErrorRecord(r, c, e, "part", whole=w), texts, texts, errors, texts),
    ),
    max_size=30,
)


def references(side):
    return {report_key(record.whole or record.reference) for record in side}


@given(records, st.integers(0, 5))
def test_split_by_reference_no_reference_stands_on_two_sides(drawn, seed):
    split = split_by_reference(drawn, 0.3, 0.3, seed)
    sides = [split.train, split.validation, split.test]
    for side in sides:
        for other in sides:
            if side is not other:
                assert not references(side) & references(other)
                assert not {report_key(record.candidate) for record in side} & references(other)
    kept = [id(record) for side in sides for record in side]
    assert len(kept) == len(set(kept))
    assert len(kept) + split.duplicates + split.crossing == len(drawn)
    assert not any(record.whole for record in split.validation + split.test)


@given(records, st.integers(0, 5))
def test_split_by_reference_pairs_of_the_sides_share_no_reference(drawn, seed):
    graded = [r if isinstance(r, GradedReport) else grade_by_errors(r, RADCLIQ) for r in drawn]
    split = split_by_reference(graded, 0.3, 0.3, seed)
    sides = [graded_pairs(side, RADCLIQ).pairs for side in (split.train, split.validation, split.test)]
    keys = [{report_key(pair.reference) for pair in pairs} for pairs in sides]
    assert not keys[0] & keys[1] | keys[0] & keys[2] | keys[1] & keys[2]
    # Grading leaves every record where it was.
    before = split_by_reference(drawn, 0.3, 0.3, seed)
    for side in ("train", "validation", "test"):
        assert [(r.reference, r.candidate) for r in getattr(before, side)] == [
            (r.reference, r.candidate) for r in getattr(split, side)
        ]


def test_split_by_reference_sides_have_the_asked_shares_and_stay_as_records_come():
    drawn = [GradedReport(f"Nodule of {n} mm.", "No nodule.", (0, 1, 0, 0, 0, 0)) for n in range(1000)]
    split = split_by_reference(drawn, 0.1, 0.2, seed=3)
    assert 70 < len(split.validation) < 130
    assert 160 < len(split.test) < 240
    fewer = split_by_reference(drawn[::2], 0.1, 0.2, seed=3)
    assert {r.reference for r in fewer.test} <= {r.reference for r in split.test}
    assert split_by_reference(drawn, 0.1, 0.2, seed=4) != split
