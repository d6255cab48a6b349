"""Injection of errors into phantom studies, whose findings are known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rrg_rewards.data.phantom.studies import FINDINGS_HEADER, IMPRESSION_HEADER, PhantomStudy
from rrg_rewards.data.phantom.wording import Template, Topic, Wording, load_wording
from rrg_rewards.data.phantom.writer import Mention, PhantomFinding, draw_mention, write_mentions
from rrg_rewards.findings.editing.injected_report import (
    LETTERS,
    ErrorEdit,
    InjectedReport,
    draw_counts,
    requested_counts,
)
from rrg_rewards.utilities.random_draws import Draws, seeded_draws
from rrg_rewards.utilities.yaml_files import package_yaml

_OFFSET = len(FINDINGS_HEADER) + 1
# Order in which errors are added, fewest suitable findings first, because a finding has at most one error.
_ORDER = "FDECB"
_ACTIONS = {"B": "dropped", "C": "moved", "E": "comparison added", "F": "comparison dropped"}
# Minimum difference of two clearly different severities, in steps.
_CLEAR_STEPS = 2
# Minimum ratio of two clearly different sizes, and minimum difference for nodules (both exclusive).
_CLEAR_RATIO, _CLEAR_MM = 1.5, 4


@dataclass(frozen=True)
class InjectedStudy:
    """The report of a phantom study with injected errors.

    Args:
        report: Reference, candidate, counts and edits.
        findings: Findings of the candidate, as in ``PhantomStudy.findings``.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> injected = inject_phantom_errors(phantom_studies(1)[0], {"B": 1}, seed=0)
        >>> injected.report.counts
        (0, 1, 0, 0, 0, 0)
    """

    report: InjectedReport
    findings: tuple[PhantomFinding, ...]


@dataclass(frozen=True)
class _Unit:
    """Content of one sentence: a finding with its suspected cause, or findings that need a common sentence.

    ``place`` is the start and end of the sentence in the findings section of the reference.
    """

    findings: tuple[PhantomFinding, ...]
    suspected: str | None
    place: tuple[int, int]

    @property
    def concepts(self) -> tuple[str, ...]:
        return tuple(finding.concept for finding in self.findings)


class _Phrasing:
    """The topics of a wording style, by the concepts that they state."""

    def __init__(self, wording: Wording) -> None:
        self.wording = wording
        self.topics: dict[tuple[str, ...], list[Topic]] = {}
        for topic in (*wording.topics, *wording.distractors):
            self.topics.setdefault(topic.concepts, []).append(topic)
        self._asides = {id(topic) for topic in wording.distractors}

    def is_aside(self, mention: Mention) -> bool:
        """Whether a mention states a finding outside the labels."""
        return id(mention.topic) in self._asides

    def templates(self, unit: _Unit) -> list[tuple[Topic, Template]]:
        """Return the topics and templates whose slots are exactly the attributes of a unit."""
        return [
            (topic, template)
            for topic in self.topics.get(unit.concepts, ())
            for template in topic.findings
            if _states_exactly(topic, template, unit)
        ]

    def mention(self, unit: _Unit, draws: Draws) -> Mention:
        """Draw a topic and a template for a unit."""
        topic, template = draws.pick(self.templates(unit))
        return Mention(topic, template, unit.findings[0], unit.suspected)


def _states_exactly(topic: Topic, template: Template, unit: _Unit) -> bool:
    finding, slots = unit.findings[0], template.slots
    needed = {
        "size": finding.size_mm is not None,
        "severity": finding.severity is not None,
        "kind": finding.kind is not None,
    }
    return (
        topic.uncertain == (finding.presence == "uncertain")
        and all((slot in slots) == known for slot, known in needed.items())
        and bool(slots & {"location", "side"}) == (finding.side is not None)
        and (finding.side is None or (finding.side, finding.lobe) in topic.where)
        and (finding.kind is None or finding.kind in topic.kinds)
        and (finding.change is None or ("change" in slots and finding.change in topic.changes))
        and (unit.suspected is None or ("interpretation" in slots and unit.suspected in topic.interpretations))
    )


def inject_phantom_errors(
    study: PhantomStudy, counts: Mapping[str, int] | Sequence[int] | None = None, *, seed: int
) -> InjectedStudy:
    """Write a candidate report for a phantom study with a known number of errors.

    The candidate states the edited findings. It also differs from the reference in wording, order, normal anatomy and
    denials. These differences are not errors. A finding has at most one error:

    - A: A finding that the study does not have is stated.
    - B: A finding is missing.
    - C: The side or the lobe is wrong, but not both; or the lymph node station or the part of the aorta is wrong, and
      neither contains the other.
    - D: The severity is wrong by at least two steps, such as small for large; or the larger size is more than 1.5 times
      the smaller one and, for nodules, more than 4 mm larger.
    - E: A finding without a change since a prior scan has one.
    - F: The change of a finding since a prior scan is missing.

    A suspected cause ("suspicious for infection") is part of its finding, not a separate finding.

    Args:
        study: Study from :func:`rrg_rewards.data.phantom_studies`.
        counts: Numbers of errors by letter, or all six. Default: drawn as by
            :func:`rrg_rewards.findings.error_counts`.
        seed: Non-negative seed. The same study, counts and seed give the same candidate.

    Returns:
        The candidate with its findings. It has fewer errors than requested if the study has too few suitable findings.
        ``report.declined`` contains the missing numbers.

    Raises:
        TypeError: If counts or seed are not integers.
        ValueError: If a category is unknown or a number is negative.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> study = phantom_studies(2, style="compact")[1]
        >>> injected = inject_phantom_errors(study, {"C": 1}, seed=0)
        >>> injected.report.edits[0].detail
        'Lung nodule: right upper for right lower'
    """
    draws = seeded_draws(seed, study.study_id)
    requested = draw_counts(draws) if counts is None else requested_counts(counts)
    phrasing = _Phrasing(load_wording(study.style))
    injection = _Injection(phrasing, _units(study, phrasing), draws)
    for letter in _ORDER:
        injection.add(letter, requested[LETTERS.index(letter)])
    injection.invent(requested[0], {finding.concept for finding in study.findings if finding.presence != "absent"})
    return injection.write(study, requested)


def _units(study: PhantomStudy, phrasing: _Phrasing) -> list[_Unit]:
    """Return the content of each sentence of the reference. Findings of one sentence are separated if possible."""
    wording = phrasing.wording
    known = {concept for topic in (*wording.topics, *wording.distractors) for concept in topic.concepts}
    stated: dict[tuple[int, int], list[PhantomFinding]] = {}
    for finding, place in zip(study.findings, study.places, strict=True):
        if finding.presence != "absent":
            stated.setdefault(place, []).append(finding)
    units = []
    for place, findings in stated.items():
        own = tuple(finding for finding in findings if finding.concept in known)
        suspected = next((finding.concept for finding in findings if finding.concept not in known), None)
        apart = [_Unit((finding,), suspected, place) for finding in own]
        units += apart if all(map(phrasing.templates, apart)) else [_Unit(own, suspected, place)]
    return units


class _Injection:
    """The units of a study, to which errors are added."""

    def __init__(self, phrasing: _Phrasing, units: Sequence[_Unit], draws: Draws) -> None:
        self._phrasing, self._draws = phrasing, draws
        self._untouched = list(units)
        self._edited: list[tuple[_Unit | None, ErrorEdit]] = []
        self._invented: list[tuple[Mention, ErrorEdit]] = []

    def add(self, letter: str, number: int) -> None:
        """Add up to ``number`` errors of a category to findings without an error."""
        for _ in range(number):
            offers = [
                (i, changed, detail)
                for i, unit in enumerate(self._untouched)
                for changed, detail in self._offers(letter, unit)
            ]
            if not offers:
                return
            # Draw the finding before the error. Otherwise findings with many possible errors would be drawn more often.
            index = self._draws.pick(sorted({i for i, _, _ in offers}))
            _, changed, detail = self._draws.pick([offer for offer in offers if offer[0] == index])
            unit = self._untouched.pop(index)
            action = _ACTIONS.get(letter) or ("size" if detail.endswith(" mm") else "severity")
            # From a span of the findings section to one of the report.
            place = unit.place[0] + _OFFSET, unit.place[1] + _OFFSET
            self._edited.append((changed, ErrorEdit(letter, action, detail, place)))

    def _offers(self, letter: str, unit: _Unit) -> Iterator[tuple[_Unit | None, str]]:
        if letter == "B":
            yield from self._without_one(unit)
        elif len(unit.findings) == 1:
            finding = unit.findings[0]
            for changed, detail in _wrong_findings(letter, finding, self._phrasing.topics.get(unit.concepts, ())):
                edited = replace(unit, findings=(changed,))
                if self._phrasing.templates(edited):
                    yield edited, f"{finding.concept}: {detail}"

    def _without_one(self, unit: _Unit) -> Iterator[tuple[_Unit | None, str]]:
        for finding in unit.findings:
            rest = replace(unit, findings=tuple(other for other in unit.findings if other is not finding))
            if not rest.findings:
                yield None, finding.concept
            elif self._phrasing.templates(rest):
                yield rest, finding.concept

    def invent(self, number: int, stated: set[str]) -> None:
        """Add findings that the study does not have."""
        wording, draws = self._phrasing.wording, self._draws
        topics = [topic for topic in (*wording.topics, *wording.distractors) if len(topic.concepts) == 1]
        for _ in range(number):
            concepts = sorted({topic.concepts[0] for topic in topics} - stated)
            if not concepts:
                return
            concept = draws.pick(concepts)
            topic = draws.pick([topic for topic in topics if topic.concepts[0] == concept])
            stated = stated | {concept}
            # Without a prior scan, because an invented comparison would be a second error.
            mention = draw_mention(topic, False, wording, draws)
            self._invented.append((mention, ErrorEdit("A", "invented", concept)))

    def write(self, study: PhantomStudy, requested: tuple[int, ...]) -> InjectedStudy:
        """Write the candidate."""
        phrasing, draws = self._phrasing, self._draws
        kept = [unit for unit, _ in self._edited if unit is not None]
        mentions = [phrasing.mention(unit, draws) for unit in (*self._untouched, *kept)]
        mentions += [mention for mention, _ in self._invented]
        asides = [mention for mention in mentions if phrasing.is_aside(mention)]
        ours = [mention for mention in mentions if not phrasing.is_aside(mention)]
        ours.sort(key=lambda mention: phrasing.wording.position(mention.topic))
        report = write_mentions(ours, asides, study.context.prior, phrasing.wording, draws)
        edits = [edit for _, edit in (*self._edited, *self._invented)]
        made = [edit.category for edit in edits]
        return InjectedStudy(
            InjectedReport(
                reference=study.report,
                candidate=f"{FINDINGS_HEADER} {report.findings_text}\n{IMPRESSION_HEADER} {report.impression_text}",
                counts=tuple(made.count(letter) for letter in LETTERS),
                requested=requested,
                edits=(*edits, ErrorEdit(None, "rewritten", "the whole report")),
            ),
            findings=report.findings,
        )


def _wrong_findings(
    letter: str, finding: PhantomFinding, topics: Sequence[Topic]
) -> Iterator[tuple[PhantomFinding, str]]:
    """Yield variants of a finding with one error of a category, each with a description of the error.

    Args:
        letter: Category of ``rrg_rewards.schemas.REXVAL_ERRORS``: C, D, E or F.
        finding: The finding.
        topics: Topics that can state the finding, with their possible attributes.

    Example:
        >>> list(_wrong_findings("F", PhantomFinding("Lung nodule", change="new"), []))[0][1]
        'new left out'
    """
    if letter == "F":
        if finding.change is not None:
            yield replace(finding, change=None), f"{finding.change} left out"
        return
    for topic in topics:
        if letter == "C":
            yield from _wrong_places(finding, topic)
        elif letter == "D":
            yield from _wrong_severities(finding, topic)
        elif finding.change is None:
            yield from ((replace(finding, change=change), f"{change} added") for change in topic.changes)


def _wrong_places(finding: PhantomFinding, topic: Topic) -> Iterator[tuple[PhantomFinding, str]]:
    here = (finding.side, finding.lobe)
    for side, lobe in topic.where if here in topic.where else ():
        other_side = {side, finding.side} == {"left", "right"} and lobe == finding.lobe
        other_lobe = side == finding.side and None not in (lobe, finding.lobe) and lobe != finding.lobe
        if other_side or other_lobe:
            yield replace(finding, side=side, lobe=lobe), f"{_site(side, lobe)} for {_site(*here)}"
    stations = package_yaml("rrg_rewards.data.phantom", "errors")["stations"].get(finding.concept, {})
    for kind, whole in stations.items():
        apart = kind != finding.kind and whole != finding.kind and stations.get(finding.kind or "") != kind
        if finding.kind in stations and apart:
            yield replace(finding, kind=kind), f"{kind} for {finding.kind}"


def _site(side: str | None, lobe: str | None) -> str:
    return " ".join(word for word in (side, lobe) if word)


def _wrong_severities(finding: PhantomFinding, topic: Topic) -> Iterator[tuple[PhantomFinding, str]]:
    steps = package_yaml("rrg_rewards.data.phantom", "errors")["severities"]
    step = steps.get(finding.severity or "")
    if step is not None:
        for severity in topic.severities:
            if abs(steps.get(severity, step) - step) >= _CLEAR_STEPS:
                yield replace(finding, severity=severity), f"{severity} for {finding.severity}"
    here = finding.size_mm
    if here is not None:
        for size in topic.sizes:
            small, large = sorted((size, here))
            if large > _CLEAR_RATIO * small and (finding.concept != "Lung nodule" or large - small > _CLEAR_MM):
                yield replace(finding, size_mm=size), f"{size} mm for {here} mm"
