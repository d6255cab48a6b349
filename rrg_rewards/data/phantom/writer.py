"""Writer of phantom reports: chooses findings, attributes, wording and order for given labels."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rrg_rewards.data.phantom.wording import OPTIONAL_SLOTS, Region, Template, Topic, Wording, capitalized
from rrg_rewards.schemas import CT_RATE
from rrg_rewards.utilities.random_draws import Draws

_LABELS = frozenset(CT_RATE.labels)
_ORDER_JITTER = 3.0


@dataclass(frozen=True)
class PhantomFinding:
    """A finding that a phantom report states, with its attributes.

    Args:
        concept: A CT-RATE label, or the name of a finding outside the labels such as ``hepatic cyst``.
        presence: ``present``, ``absent`` (denied by name) or ``uncertain`` (hedged). Only suspected causes
            (``infection``) and findings outside the labels can be uncertain.
        side: ``right``, ``left`` or ``bilateral``.
        lobe: ``upper``, ``middle`` or ``lower``.
        kind: Device, lymph node station, form of emphysema, or another subtype.
        size_mm: Size in mm: the largest diameter, the short axis of lymph nodes, or the depth of fluid.
        severity: Severity, such as ``mild`` or ``large``.
        change: Change since the prior scan: ``new``, ``stable``, ``increased`` or ``decreased``.

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
        """The CT-RATE label of the finding, or None."""
        return self.concept if self.concept in _LABELS else None


@dataclass(frozen=True)
class Report:
    """A written report.

    Args:
        findings: Findings in the order of the findings section.
        findings_text: The findings section.
        impression_text: The impression.
    """

    findings: tuple[PhantomFinding, ...]
    findings_text: str
    impression_text: str


@dataclass(frozen=True)
class Mention:
    """A topic with a template, the finding that it states, and a suspected cause.

    All concepts of the topic have the attributes of ``finding``.
    """

    topic: Topic
    template: Template
    finding: PhantomFinding
    suspected: str | None

    @property
    def slots(self) -> set[str]:
        """Slots that an impression may use: those of the template, and optional ones."""
        return {*self.template.slots, *OPTIONAL_SLOTS}

    def findings(self) -> list[PhantomFinding]:
        """Return the stated findings: one for each concept, and the suspected cause."""
        finding = self.finding
        stated = [replace(finding, concept=concept) for concept in self.topic.concepts]
        if self.suspected:
            stated.append(PhantomFinding(self.suspected, "uncertain", side=finding.side, lobe=finding.lobe))
        return stated

    def text(self, template: Template, wording: Wording, draws: Draws) -> str:
        """Fill a template of the topic with the attributes of the finding."""
        values = {"change": "", "interpretation": ""}
        slots, finding = template.slots, self.finding
        if "location" in slots and finding.side:
            values["location"] = draws.pick(wording.location_texts(finding.side, finding.lobe))
        if finding.change and "change" in slots:
            values["change"] = draws.pick(wording.changes[finding.change])
        if self.suspected and "interpretation" in slots:
            values["interpretation"] = draws.pick(self.topic.interpretations[self.suspected])
        others = {"side": finding.side, "size": finding.size_mm, "severity": finding.severity, "kind": finding.kind}
        values.update((slot, str(value)) for slot, value in others.items() if value is not None)
        return template.fill(values, draws)


def _draw_mention(topic: Topic, prior: bool, wording: Wording, draws: Draws) -> Mention:
    """Draw a template of a topic, then the attributes for its slots."""
    template = draws.pick(topic.findings)
    slots, rates = template.slots, wording.rates
    side, lobe = draws.pick(topic.where) if slots & {"location", "side"} else (None, None)
    changed = prior and "change" in slots and draws.chance(rates["change"])
    hedged = "interpretation" in slots and draws.chance(rates["interpretation"])
    finding = PhantomFinding(
        concept=topic.concepts[0],
        presence="uncertain" if topic.uncertain else "present",
        side=side,
        lobe=lobe,
        size_mm=draws.pick(topic.sizes) if "size" in slots else None,
        severity=draws.pick(topic.severities) if "severity" in slots else None,
        kind=draws.pick(topic.kinds) if "kind" in slots else None,
        change=draws.pick(topic.changes) if changed else None,
    )
    return Mention(topic, template, finding, draws.pick(tuple(topic.interpretations)) if hedged else None)


def _choose_topics(positive: Iterable[str], wording: Wording, draws: Draws) -> list[Topic]:
    """Choose a topic for each positive label, in the order of the file. Two labels may share one topic."""
    remaining = set(positive)
    chosen = []
    for topic in wording.joint_topics:
        if remaining.issuperset(topic.concepts) and draws.chance(wording.rates["joint"]):
            chosen.append(topic)
            remaining.difference_update(topic.concepts)
    # Iterate over the schema, because the order of a set of strings differs between processes.
    chosen.extend(draws.pick(wording.label_topics[label]) for label in CT_RATE.labels if label in remaining)
    return sorted(chosen, key=wording.position)


class _FindingsSection:
    """The findings section, written region by region."""

    def __init__(self, wording: Wording, draws: Draws) -> None:
        self._wording = wording
        self._draws = draws
        # Labels that any region has denied: "no pleural or pericardial effusion" also denies a label of another region.
        self._denied: set[str] = set()
        self.findings: list[PhantomFinding] = []
        self.sentences: list[str] = []

    @property
    def text(self) -> str:
        """The findings section."""
        return " ".join(self.sentences)

    def add(self, region: Region, mentions: list[Mention], stated: set[str]) -> None:
        """Write a region: normal anatomy, then its findings, then denials."""
        wording, draws = self._wording, self._draws
        written = [
            statement.template.fill({}, draws)
            for statement in region.normals
            if statement.fits(stated) and draws.chance(wording.rates["normal"])
        ]
        for mention in draws.shuffled(mentions) if wording.shuffle else mentions:
            self.findings += mention.findings()
            written.append(mention.text(mention.template, wording, draws))
        for statement in draws.shuffled(region.negatives) if wording.shuffle else region.negatives:
            fits = statement.fits(stated) and self._denied.isdisjoint(statement.denies)
            if fits and draws.chance(wording.rates["negative"]):
                self._denied.update(statement.denies)
                self.findings += [PhantomFinding(label, "absent") for label in statement.denies]
                written.append(statement.template.fill({}, draws))
        if written:
            written[0] = draws.pick(region.leads) + written[0]
        self.sentences += written


def _write_impression(mentions: list[Mention], positive: set[str], wording: Wording, draws: Draws) -> str:
    """Write the impression. It states all mentions, with attributes that the findings section also states."""
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
    """Write a report whose positive labels are exactly the given ones.

    Args:
        labels: 18 values, 0 or 1, in the order of CT-RATE.
        prior: Whether there is a prior scan to compare with.
        wording: Templates and rates of a style.
        draws: Source of random choices.

    Example:
        >>> import numpy as np
        >>> from rrg_rewards.data.phantom.wording import load_wording
        >>> labels = (0, 0, 1, *[0] * 15)
        >>> report = write_report(labels, False, load_wording("compact"), Draws(np.random.default_rng(0)))
        >>> report.impression_text
        'Cardiomegaly.'
    """
    positive = {name for name, label in zip(CT_RATE.labels, labels, strict=True) if label}
    topics = _choose_topics(positive, wording, draws)
    distractors = [topic for topic in wording.distractors if draws.chance(wording.rates["distractor"])]
    mentions = [_draw_mention(topic, prior, wording, draws) for topic in topics]
    asides = [_draw_mention(topic, prior, wording, draws) for topic in distractors]
    stated = positive.union(*(aside.topic.concepts for aside in asides))
    section = _FindingsSection(wording, draws)
    if prior and wording.comparisons:
        section.sentences.append(draws.pick(wording.comparisons).fill({}, draws))
    for region in wording.regions:
        here = [mention for mention in (*mentions, *asides) if mention.topic.region == region.name]
        section.add(region, here, stated)
    if not section.sentences:
        section.sentences.append(draws.pick(wording.normal_impressions).fill({}, draws))
    if not positive:
        impression = draws.pick(wording.normal_impressions).fill({}, draws)
    else:
        in_order = _nearly_in_order(mentions, draws) if wording.shuffle else mentions
        added = [aside for aside in asides if draws.chance(wording.rates["distractor_impression"])]
        impression = _write_impression([*in_order, *added], positive, wording, draws)
    return Report(tuple(section.findings), section.text, impression)


def _nearly_in_order(mentions: Sequence[Mention], draws: Draws) -> list[Mention]:
    """Return mentions in an order that differs slightly from the given one."""
    ranks = [index + _ORDER_JITTER * draws.uniform() for index in range(len(mentions))]
    return [mentions[index] for index in sorted(range(len(mentions)), key=ranks.__getitem__)]
