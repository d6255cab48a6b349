"""From labels to a report: which findings are stated, with which attributes, in which words and order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from rrg_rewards.data.phantom_wording import OPTIONAL_SLOTS, Region, Template, Topic, Wording, capitalized
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.draws import Draws

__all__ = ["Mention", "PhantomFinding", "Report", "draw_mention", "write_mentions", "write_report"]

_LABELS = frozenset(CT_RATE.labels)
_ORDER_JITTER = 3.0


@dataclass(frozen=True)
class PhantomFinding:
    """One finding that a phantom report states, with the attributes that it states.

    Args:
        concept: A CT-RATE label, or the name of a finding outside the labels such as ``hepatic cyst``.
        presence: ``present``, ``absent`` (denied by name) or ``uncertain`` (hedged). A label is never hedged: only what
            it may mean (``infection``) and findings outside the labels are.
        side: ``right``, ``left`` or ``bilateral``.
        lobe: ``upper``, ``middle`` or ``lower``.
        kind: What it is more exactly: the device, the station of lymph nodes, the form of emphysema.
        size_mm: Largest diameter, of lymph nodes the short axis, of fluid the depth, in mm.
        severity: Such as ``mild`` or ``large``.
        change: Since the earlier scan: ``new``, ``stable``, ``increased`` or ``decreased``.

    Example:
        >>> PhantomFinding("Lung nodule", side="right", lobe="upper", size_mm=6).label
        'Lung nodule'
    """

    concept: str
    presence: Literal["present", "absent", "uncertain"] = "present"
    side: str | None = None
    lobe: str | None = None
    kind: str | None = None
    size_mm: int | None = None
    severity: str | None = None
    change: str | None = None

    @property
    def label(self) -> str | None:
        """The CT-RATE label this finding is, or None."""
        return self.concept if self.concept in _LABELS else None


@dataclass(frozen=True)
class Report:
    """A written report.

    Args:
        findings: What the findings section states, in its order.
        places: For each finding the first character and the end of its sentence in the findings section.
        findings_text: The findings section.
        impression_text: The impression.
    """

    findings: tuple[PhantomFinding, ...]
    places: tuple[tuple[int, int], ...]
    findings_text: str
    impression_text: str


@dataclass(frozen=True)
class Mention:
    """A topic with the attributes that it is told with, and the template that tells them."""

    topic: Topic
    template: Template
    side: str | None
    lobe: str | None
    size_mm: int | None
    severity: str | None
    kind: str | None
    change: str | None
    suspected: str | None

    @property
    def slots(self) -> set[str]:
        """Slots that an impression may use: those whose values the findings section tells."""
        return {*self.template.slots, *OPTIONAL_SLOTS}

    def findings(self) -> list[PhantomFinding]:
        """What it states: its concepts, and what they are suspected to mean."""
        stated = [
            PhantomFinding(
                concept=concept,
                presence="uncertain" if self.topic.uncertain else "present",
                side=self.side,
                lobe=self.lobe,
                kind=self.kind,
                size_mm=self.size_mm,
                severity=self.severity,
                change=self.change,
            )
            for concept in self.topic.concepts
        ]
        if self.suspected:
            stated.append(PhantomFinding(self.suspected, "uncertain", side=self.side, lobe=self.lobe))
        return stated

    def text(self, template: Template, wording: Wording, draws: Draws) -> str:
        """One of the topic's templates with these attributes in it."""
        values = {"change": "", "interpretation": ""}
        slots = template.slots
        if "location" in slots and self.side:
            values["location"] = draws.pick(wording.location_texts(self.side, self.lobe))
        if self.change and "change" in slots:
            values["change"] = draws.pick(wording.changes[self.change])
        if self.suspected and "interpretation" in slots:
            values["interpretation"] = draws.pick(self.topic.interpretations[self.suspected])
        values.update(
            (slot, str(value))
            for slot, value in (
                ("side", self.side),
                ("size", self.size_mm),
                ("severity", self.severity),
                ("kind", self.kind),
            )
            if value is not None
        )
        return template.fill(values, draws)


def draw_mention(topic: Topic, prior: bool, wording: Wording, draws: Draws) -> Mention:
    """Draw how a topic is stated: a template, then the attributes that it has slots for."""
    template = draws.pick(topic.findings)
    slots, rates = template.slots, wording.rates
    side, lobe = draws.pick(topic.where) if slots & {"location", "side"} else (None, None)
    changed = prior and "change" in slots and draws.chance(rates["change"])
    hedged = "interpretation" in slots and draws.chance(rates["interpretation"])
    return Mention(
        topic=topic,
        template=template,
        side=side,
        lobe=lobe,
        size_mm=draws.pick(topic.sizes) if "size" in slots else None,
        severity=draws.pick(topic.severities) if "severity" in slots else None,
        kind=draws.pick(topic.kinds) if "kind" in slots else None,
        change=draws.pick(topic.changes) if changed else None,
        suspected=draws.pick(tuple(topic.interpretations)) if hedged else None,
    )


def _choose_topics(positive: Iterable[str], wording: Wording, draws: Draws) -> list[Topic]:
    """One topic for each positive label, most important first; two labels may share one that tells both."""
    remaining = set(positive)
    chosen = []
    for topic in wording.joint_topics:
        if remaining.issuperset(topic.concepts) and draws.chance(wording.rates["joint"]):
            chosen.append(topic)
            remaining.difference_update(topic.concepts)
    # In the schema's order: a set of strings has another order in every process.
    chosen.extend(draws.pick(wording.label_topics[label]) for label in CT_RATE.labels if label in remaining)
    return sorted(chosen, key=wording.place)


class _FindingsSection:
    """The findings section as it is written, region by region."""

    def __init__(self, wording: Wording, draws: Draws) -> None:
        self._wording = wording
        self._draws = draws
        # Over all regions: "no pleural or pericardial effusion" leaves nothing to deny about the pericardium.
        self._denied: set[str] = set()
        self.findings: list[PhantomFinding] = []
        # For each finding the index of its sentence.
        self._sentence_of: list[int] = []
        self.sentences: list[str] = []

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(self.sentences)

    def places(self) -> tuple[tuple[int, int], ...]:
        """Where the sentence of each finding stands in the text."""
        ends = list(accumulate(len(sentence) + 1 for sentence in self.sentences))
        return tuple((ends[i] - 1 - len(self.sentences[i]), ends[i] - 1) for i in self._sentence_of)

    def _state(self, findings: Iterable[PhantomFinding], sentence: int) -> None:
        for finding in findings:
            self.findings.append(finding)
            self._sentence_of.append(sentence)

    def add(self, region: Region, mentions: list[Mention], told: set[str]) -> None:
        """Write a region: normal anatomy, the findings there, then what is denied of the rest."""
        wording, draws = self._wording, self._draws
        written = [
            statement.template.fill({}, draws)
            for statement in region.normals
            if statement.fits(told) and draws.chance(wording.rates["normal"])
        ]
        for mention in draws.shuffled(mentions) if wording.shuffle else mentions:
            self._state(mention.findings(), len(self.sentences) + len(written))
            written.append(mention.text(mention.template, wording, draws))
        for statement in draws.shuffled(region.negatives) if wording.shuffle else region.negatives:
            fits = statement.fits(told) and self._denied.isdisjoint(statement.denies)
            if fits and draws.chance(wording.rates["negative"]):
                self._denied.update(statement.denies)
                denied = (PhantomFinding(label, "absent") for label in statement.denies)
                self._state(denied, len(self.sentences) + len(written))
                written.append(statement.template.fill({}, draws))
        if written:
            written[0] = draws.pick(region.leads) + written[0]
        self.sentences += written


def _write_impression(mentions: list[Mention], positive: set[str], wording: Wording, draws: Draws) -> str:
    """Sentences that tell every mention once more, with no attribute that the findings section leaves out."""
    phrases = []
    for mention in mentions:
        fitting = [template for template in mention.topic.impression if template.slots <= mention.slots]
        phrases.append(mention.text(draws.pick(fitting), wording, draws))
    sentences: list[str] = []
    for phrase in phrases:
        if sentences and ";" not in sentences[-1] and draws.chance(wording.rates["merge"]):
            sentences[-1] += f"; {phrase[0].lower()}{phrase[1:]}"
        else:
            sentences.append(phrase)
    closings = [closing for closing in wording.closings if closing.fits(positive)]
    text = " ".join(f"{capitalized(sentence)}." for sentence in sentences)
    if closings and draws.chance(wording.rates["closing"]):
        text += " " + draws.pick(closings).template.fill({}, draws)
    return text


def write_report(labels: tuple[int, ...], prior: bool, wording: Wording, draws: Draws) -> Report:
    """Write a report that states exactly these labels.

    Args:
        labels: 18 values 0 or 1 in CT-RATE's order.
        prior: Whether there is an earlier scan to compare with.
        wording: Templates and rates of a style.
        draws: Where choices come from.

    Example:
        >>> import numpy as np
        >>> from rrg_rewards.data.phantom_wording import load_wording
        >>> labels = (0, 0, 1, *[0] * 15)
        >>> report = write_report(labels, False, load_wording("compact"), Draws(np.random.default_rng(0)))
        >>> report.impression_text
        'Cardiomegaly.'
    """
    positive = {name for name, label in zip(CT_RATE.labels, labels, strict=True) if label}
    topics = _choose_topics(positive, wording, draws)
    distractors = [topic for topic in wording.distractors if draws.chance(wording.rates["distractor"])]
    mentions = [draw_mention(topic, prior, wording, draws) for topic in topics]
    asides = [draw_mention(topic, prior, wording, draws) for topic in distractors]
    return write_mentions(mentions, asides, prior, wording, draws)


def write_mentions(
    mentions: Sequence[Mention], asides: Sequence[Mention], prior: bool, wording: Wording, draws: Draws
) -> Report:
    """Write a report that states exactly these mentions.

    Args:
        mentions: Of topics, in the order in which an impression tells them.
        asides: Of distractors.
        prior: Whether there is an earlier scan to compare with.
        wording: Templates and rates of a style.
        draws: Where choices come from.
    """
    positive = {concept for mention in mentions for concept in mention.topic.concepts}
    told = positive.union(*(aside.topic.concepts for aside in asides))
    section = _FindingsSection(wording, draws)
    if prior and wording.comparisons:
        section.sentences.append(draws.pick(wording.comparisons).fill({}, draws))
    for region in wording.regions:
        here = [mention for mention in (*mentions, *asides) if mention.topic.region == region.name]
        section.add(region, here, told)
    if not section.sentences:
        section.sentences.append(draws.pick(wording.normal_impressions).fill({}, draws))
    if not positive:
        impression = draws.pick(wording.normal_impressions).fill({}, draws)
    else:
        in_order = _nearly_in_order(mentions, draws) if wording.shuffle else mentions
        added = [aside for aside in asides if draws.chance(wording.rates["distractor_impression"])]
        impression = _write_impression([*in_order, *added], positive, wording, draws)
    return Report(tuple(section.findings), section.places(), section.text, impression)


def _nearly_in_order(mentions: Sequence[Mention], draws: Draws) -> list[Mention]:
    """What matters most still comes early, but not always in one order."""
    places = [place + _ORDER_JITTER * draws.uniform() for place in range(len(mentions))]
    return [mentions[place] for place in sorted(range(len(mentions)), key=places.__getitem__)]
