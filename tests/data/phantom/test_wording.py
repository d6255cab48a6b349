"""The wording files: every template can be used, and none contradicts a label or leaves a slot empty."""

import re

import numpy as np
import pytest

from rrg_rewards.data import phantom_studies
from rrg_rewards.data.phantom.wording import OPTIONAL_SLOTS, STYLES, Statement, Template, Wording, load_wording
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.random_draws import Draws

SLOT_FIELDS = {
    "location": "where",
    "side": "where",
    "size": "sizes",
    "severity": "severities",
    "kind": "kinds",
    "change": "changes",
    "interpretation": "interpretations",
}


@pytest.fixture(scope="module", params=STYLES)
def style(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def wording(style: str) -> Wording:
    return load_wording(style)


def pattern(template: Template, wording: Wording) -> re.Pattern[str]:
    """Return sentences of a template."""
    text = re.escape(template.text)
    text = re.sub(r"\\{\w+\\}", "[^.]*?", text)
    text = re.sub(r"<(\w+)>", lambda match: "(?:" + "|".join(map(re.escape, wording.phrases[match[1]])) + ")", text)
    return re.compile(text, re.IGNORECASE)


def statements(wording: Wording) -> list[Statement]:
    regions = [statement for region in wording.regions for statement in (*region.normals, *region.negatives)]
    return [*regions, *wording.closings]


def test_wording_every_template_is_met(style, wording):
    corpus = phantom_studies(2500, seed=11, style=style)
    findings = "\n".join(study.findings_text for study in corpus)
    impressions = "\n".join(study.impression_text for study in corpus)
    topics = (*wording.topics, *wording.distractors)
    in_findings = [template for topic in topics for template in topic.findings]
    in_findings += [s.template for region in wording.regions for s in (*region.normals, *region.negatives)]
    in_impressions = [template for topic in topics for template in topic.impression]
    in_impressions += [*(s.template for s in wording.closings), *wording.normal_impressions]
    assert [t.text for t in (*in_findings, *wording.comparisons) if not pattern(t, wording).search(findings)] == []
    assert [t.text for t in in_impressions if not pattern(t, wording).search(impressions)] == []


def test_wording_every_label_can_be_told(wording):
    assert set(wording.label_topics) == set(CT_RATE.labels)


def test_wording_every_slot_has_values_and_every_value_a_slot(wording):
    for topic in (*wording.topics, *wording.distractors):
        slots = {slot for template in (*topic.findings, *topic.impression) for slot in template.slots}
        for slot, name in SLOT_FIELDS.items():
            assert slot not in slots or getattr(topic, name), (topic.concepts, slot)
        for name in {"where", "sizes", "severities", "kinds", "interpretations"}:
            used = any(SLOT_FIELDS[slot] == name for slot in slots)
            assert bool(getattr(topic, name)) == used, (topic.concepts, name)
        assert slots <= set(SLOT_FIELDS)


def test_wording_every_way_to_state_a_finding_has_an_impression(wording):
    for topic in (*wording.topics, *wording.distractors):
        for template in topic.findings:
            stated = template.slots | OPTIONAL_SLOTS
            assert any(impression.slots <= stated for impression in topic.impression), template.text


def test_wording_topics_stand_in_known_regions(wording):
    regions = {region.name for region in wording.regions}
    assert {topic.region for topic in (*wording.topics, *wording.distractors)} <= regions


def test_wording_statements_name_known_concepts(wording):
    known = {*CT_RATE.labels, *(concept for topic in wording.distractors for concept in topic.concepts)}
    for statement in statements(wording):
        assert {*statement.denies, *statement.unless, *statement.when} <= known
        assert set(statement.denies) <= set(CT_RATE.labels)


def test_wording_distractors_are_no_labels_and_labels_are_not_hedged(wording):
    labels = set(CT_RATE.labels)
    assert all(labels.isdisjoint(topic.concepts) for topic in wording.distractors)
    assert all(labels.issuperset(topic.concepts) and not topic.uncertain for topic in wording.topics)


def test_wording_denials_deny_in_words(wording):
    denial = re.compile(r"\b(no|not|without|neither)\b|<(deny|not_seen|not_seen_plural)>|<normal>|normal in size", re.I)
    for region in wording.regions:
        assert all(denial.search(statement.template.text) for statement in region.negatives)


def test_wording_no_indefinite_article_before_a_vowel(style):
    text = " ".join(study.report for study in phantom_studies(1500, seed=2, style=style))
    assert re.findall(r"\b[Aa] (?:[aeio]\w*|8|11|18)\b", text) == []
    assert re.findall(r"\b[Aa]n [bcdfgjklmnpqrstvwxz]\w*", text) == []


class TestTemplate:
    def test_variants_hold_every_choice(self):
        template = Template("{side} effusion <seen>.", {"seen": ["is seen", "is noted"]})
        variants = set(template.variants({"side": ["left", "right"]}))
        assert variants == {"Left effusion is seen.", "Right effusion is seen.", "Left effusion is noted."}

    def test_fill_keeps_capitals_inside(self):
        template = Template("{size} mm nodule on CT.", {})
        assert template.fill({"size": "4"}, Draws(np.random.default_rng(0))) == "4 mm nodule on CT."

    def test_unknown_phrase_raises(self):
        with pytest.raises(ValueError, match="unknown phrase 'sen'; did you mean 'seen'"):
            Template("Effusion <sen>.", {"seen": ["is seen"]})
