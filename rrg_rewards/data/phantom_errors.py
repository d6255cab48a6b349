"""Phantom studies told with errors: candidates whose errors are known because their findings are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rrg_rewards.data.phantom import FINDINGS_HEADER, IMPRESSION_HEADER, PhantomStudy
from rrg_rewards.data.phantom_wording import Template, Topic, Wording, load_wording
from rrg_rewards.data.phantom_writer import Mention, PhantomFinding, draw_mention, write_mentions
from rrg_rewards.findings.errors import LETTERS, ErrorEdit, InjectedReport, draw_counts, requested_counts, seeded_draws
from rrg_rewards.utilities.draws import Draws

__all__ = ["InjectedStudy", "inject_phantom_errors"]

# Steps of severity; words that are none (dense, patchy) are never exchanged.
_SEVERITIES = {"minimal": 0, "small": 1, "mild": 1, "moderate": 2, "large": 3, "marked": 3, "severe": 3}
_CLEAR_STEPS = 2
# A size is wrong beyond half as much again, and of nodules beyond this many mm, too.
_CLEAR_RATIO, _CLEAR_MM = 1.5, 4
# Kinds that are places, and the wider place that each lies in: to name that one instead is no clear error.
_STATIONS = {
    "Lymphadenopathy": {
        "mediastinal": None,
        "hilar": None,
        "paratracheal": "mediastinal",
        "subcarinal": "mediastinal",
        "axillary": None,
    },
    "Arterial wall calcification": {
        "thoracic aorta": None,
        "aortic arch": "thoracic aorta",
        "descending aorta": "thoracic aorta",
    },
}
_OFFSET = len(FINDINGS_HEADER) + 1
# Scarcest first: a finding takes one error at most, and few have a comparison to lose.
_ORDER = "FDECB"
_ACTIONS = {"B": "dropped", "C": "moved", "E": "comparison added", "F": "comparison dropped"}


@dataclass(frozen=True)
class InjectedStudy:
    """A phantom study's report told with errors.

    Args:
        report: Reference, candidate, counts and edits.
        findings: What the candidate's findings section states, in its order, as ``PhantomStudy.findings``.

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
    """What is told in one sentence: a finding with its suspected cause, or two that have no sentences of their own.

    ``place`` is the sentence in the reference's findings section, None for what the reference does not hold.
    """

    findings: tuple[PhantomFinding, ...]
    suspected: str | None
    place: tuple[int, int] | None

    @property
    def concepts(self) -> tuple[str, ...]:
        return tuple(finding.concept for finding in self.findings)


class _Teller:
    """Finds the sentences of a style that can tell a unit exactly."""

    def __init__(self, wording: Wording) -> None:
        self.wording = wording
        self._topics: dict[tuple[str, ...], list[Topic]] = {}
        for topic in (*wording.topics, *wording.distractors):
            self._topics.setdefault(topic.concepts, []).append(topic)
        self._asides = {id(topic) for topic in wording.distractors}

    def topics(self, concepts: tuple[str, ...]) -> Sequence[Topic]:
        return self._topics.get(concepts, ())

    def is_aside(self, mention: Mention) -> bool:
        return id(mention.topic) in self._asides

    def templates(self, unit: _Unit) -> list[tuple[Topic, Template]]:
        """Topics and templates that have a slot for all that is known of a unit, and no other."""
        return [
            (topic, template)
            for topic in self.topics(unit.concepts)
            for template in topic.findings
            if _tells(topic, template, unit)
        ]

    def mention(self, unit: _Unit, draws: Draws) -> Mention:
        topic, template = draws.pick(self.templates(unit))
        finding = unit.findings[0]
        return Mention(
            topic=topic,
            template=template,
            side=finding.side,
            lobe=finding.lobe,
            size_mm=finding.size_mm,
            severity=finding.severity,
            kind=finding.kind,
            change=finding.change,
            suspected=unit.suspected,
        )


def _tells(topic: Topic, template: Template, unit: _Unit) -> bool:
    finding, slots = unit.findings[0], template.slots
    site = (finding.side, finding.lobe)
    needed = {
        "size": finding.size_mm is not None,
        "severity": finding.severity is not None,
        "kind": finding.kind is not None,
    }
    return (
        topic.uncertain == (finding.presence == "uncertain")
        and all((slot in slots) == known for slot, known in needed.items())
        and bool(slots & {"location", "side"}) == (finding.side is not None)
        and (finding.side is None or site in topic.where)
        and (finding.kind is None or finding.kind in topic.kinds)
        and (finding.change is None or ("change" in slots and finding.change in topic.changes))
        and (unit.suspected is None or ("interpretation" in slots and unit.suspected in topic.interpretations))
    )


def inject_phantom_errors(
    study: PhantomStudy, counts: Mapping[str, int] | Sequence[int] | None = None, *, seed: int
) -> InjectedStudy:
    """Tell a phantom study once more, with a known number of errors.

    The candidate is written anew from the edited findings, in other words, another order, with other normal anatomy and
    other denials, none of which is an error. One finding has one error at most:

    - A: a finding that the study does not have.
    - B: a finding left out, with all that was said of it.
    - C: another side or another lobe, never both; another station of lymph nodes or part of the aorta, unless one
      lies in the other.
    - D: a severity two steps off, such as small for large, or a size off by more than half and, in nodules, 4 mm.
    - E: a change since an earlier scan of a finding of which the study states none.
    - F: a change that the study states left out; the finding stays.

    What a finding may mean ("suspicious for infection") is part of it and no finding of its own.

    Args:
        study: From :func:`rrg_rewards.data.phantom_studies`.
        counts: Errors by letter, or all six; drawn as by :func:`rrg_rewards.findings.error_counts` where None.
        seed: Not negative; the same study, counts and seed give the same candidate.

    Returns:
        The candidate with its findings. It has fewer errors than asked for where the study has too few findings that
        take them; ``report.declined`` says how many.

    Raises:
        TypeError: If counts or seed are no integers.
        ValueError: For an unknown category or a negative number.

    Example:
        >>> from rrg_rewards.data import phantom_studies
        >>> study = phantom_studies(2, style="compact")[1]
        >>> injected = inject_phantom_errors(study, {"C": 1}, seed=0)
        >>> injected.report.edits[0].detail
        'Lung nodule: right upper for right lower'
    """
    draws = seeded_draws(seed, study.study_id)
    requested = draw_counts(draws) if counts is None else requested_counts(counts)
    teller = _Teller(load_wording(study.style))
    injection = _Injection(teller, _units(study, teller), draws)
    for letter in _ORDER:
        injection.add(letter, requested[LETTERS.index(letter)])
    injection.invent(requested[0], {finding.concept for finding in study.findings if finding.presence != "absent"})
    return injection.told(study, requested)


def _units(study: PhantomStudy, teller: _Teller) -> list[_Unit]:
    """What each sentence of the reference tells, two findings apart where each has a sentence of its own."""
    wording = teller.wording
    known = {concept for topic in (*wording.topics, *wording.distractors) for concept in topic.concepts}
    told: dict[tuple[int, int], list[PhantomFinding]] = {}
    for finding, place in zip(study.findings, study.places, strict=True):
        if finding.presence != "absent":
            told.setdefault(place, []).append(finding)
    units = []
    for place, findings in told.items():
        own = tuple(finding for finding in findings if finding.concept in known)
        suspected = next((finding.concept for finding in findings if finding.concept not in known), None)
        apart = [_Unit((finding,), suspected, place) for finding in own]
        units += apart if all(map(teller.templates, apart)) else [_Unit(own, suspected, place)]
    return units


class _Injection:
    """Units as they are edited."""

    def __init__(self, teller: _Teller, units: Sequence[_Unit], draws: Draws) -> None:
        self._teller, self._draws = teller, draws
        self._untouched = list(units)
        self._edited: list[tuple[_Unit | None, ErrorEdit]] = []
        self._invented: list[tuple[Mention, ErrorEdit]] = []

    def add(self, letter: str, number: int) -> None:
        """Make up to ``number`` errors of a category, each to another finding."""
        for _ in range(number):
            offers = [
                (i, changed, detail)
                for i, unit in enumerate(self._untouched)
                for changed, detail in self._offers(letter, unit)
            ]
            if not offers:
                return
            # First the finding, then what is done to it: a finding with many places is not the likelier for them.
            place = self._draws.pick(sorted({i for i, _, _ in offers}))
            _, changed, detail = self._draws.pick([offer for offer in offers if offer[0] == place])
            unit = self._untouched.pop(place)
            action = _ACTIONS.get(letter) or ("size" if detail.endswith(" mm") else "severity")
            self._edited.append((changed, ErrorEdit(letter, action, detail, reference=unit.place)))

    def _offers(self, letter: str, unit: _Unit) -> Iterator[tuple[_Unit | None, str]]:
        if letter == "B":
            yield from self._without_one(unit)
        elif len(unit.findings) == 1:
            finding = unit.findings[0]
            for changed, detail in _changes(letter, finding, self._teller.topics(unit.concepts)):
                told = replace(unit, findings=(changed,))
                if self._teller.templates(told):
                    yield told, f"{finding.concept}: {detail}"

    def _without_one(self, unit: _Unit) -> Iterator[tuple[_Unit | None, str]]:
        for finding in unit.findings:
            rest = replace(unit, findings=tuple(other for other in unit.findings if other is not finding))
            if not rest.findings:
                yield None, finding.concept
            elif self._teller.templates(rest):
                yield rest, finding.concept

    def invent(self, number: int, told: set[str]) -> None:
        """Add findings that the study does not have."""
        wording, draws = self._teller.wording, self._draws
        topics = [topic for topic in (*wording.topics, *wording.distractors) if len(topic.concepts) == 1]
        for _ in range(number):
            concepts = sorted({topic.concepts[0] for topic in topics} - told)
            if not concepts:
                return
            concept = draws.pick(concepts)
            topic = draws.pick([topic for topic in topics if topic.concepts[0] == concept])
            told = told | {concept}
            # Without an earlier scan, or the invention would come with an invented comparison.
            mention = draw_mention(topic, False, wording, draws)
            self._invented.append((mention, ErrorEdit("A", "invented", concept)))

    def told(self, study: PhantomStudy, requested: tuple[int, ...]) -> InjectedStudy:
        """Write the candidate and say what was done where."""
        teller, draws = self._teller, self._draws
        kept = [unit for unit, _ in self._edited if unit is not None]
        mentions = [teller.mention(unit, draws) for unit in (*self._untouched, *kept)]
        mentions += [mention for mention, _ in self._invented]
        asides = [mention for mention in mentions if teller.is_aside(mention)]
        ours = [mention for mention in mentions if not teller.is_aside(mention)]
        ours.sort(key=lambda mention: teller.wording.place(mention.topic))
        report = write_mentions(ours, asides, study.context.prior, teller.wording, draws)
        places = {
            finding.concept: place
            for finding, place in zip(report.findings, report.places, strict=True)
            if finding.presence != "absent"
        }
        edits = [edit for _, edit in (*self._edited, *self._invented)]
        located = tuple(
            replace(
                edit,
                reference=_shifted(edit.reference),
                candidate=None if edit.category == "B" else _shifted(places[edit.detail.partition(":")[0]]),
            )
            for edit in edits
        )
        made = [edit.category for edit in edits]
        return InjectedStudy(
            InjectedReport(
                reference=study.report,
                candidate=f"{FINDINGS_HEADER} {report.findings_text}\n{IMPRESSION_HEADER} {report.impression_text}",
                counts=tuple(made.count(letter) for letter in LETTERS),
                requested=requested,
                edits=(*located, ErrorEdit(None, "rewritten", "the whole report")),
            ),
            findings=report.findings,
        )


def _shifted(place: tuple[int, int] | None) -> tuple[int, int] | None:
    """A place in the findings section as a place in the report."""
    return None if place is None else (place[0] + _OFFSET, place[1] + _OFFSET)


def _changes(letter: str, finding: PhantomFinding, topics: Sequence[Topic]) -> Iterator[tuple[PhantomFinding, str]]:
    """The finding with one error of a category, and in words what is wrong."""
    if letter == "F":
        if finding.change is not None:
            yield replace(finding, change=None), f"{finding.change} left out"
        return
    for topic in topics:
        if letter == "C":
            yield from _moved(finding, topic)
        elif letter == "D":
            yield from _graded(finding, topic)
        elif finding.change is None:
            yield from ((replace(finding, change=change), f"{change} added") for change in topic.changes)


def _moved(finding: PhantomFinding, topic: Topic) -> Iterator[tuple[PhantomFinding, str]]:
    here = (finding.side, finding.lobe)
    for side, lobe in topic.where if here in topic.where else ():
        other_side = {side, finding.side} == {"left", "right"} and lobe == finding.lobe
        other_lobe = side == finding.side and None not in (lobe, finding.lobe) and lobe != finding.lobe
        if other_side or other_lobe:
            yield replace(finding, side=side, lobe=lobe), f"{_site(side, lobe)} for {_site(*here)}"
    stations = _STATIONS.get(finding.concept, {})
    for kind, whole in stations.items():
        apart = kind != finding.kind and whole != finding.kind and stations.get(finding.kind or "") != kind
        if finding.kind in stations and apart:
            yield replace(finding, kind=kind), f"{kind} for {finding.kind}"


def _site(side: str | None, lobe: str | None) -> str:
    return " ".join(word for word in (side, lobe) if word)


def _graded(finding: PhantomFinding, topic: Topic) -> Iterator[tuple[PhantomFinding, str]]:
    step = _SEVERITIES.get(finding.severity or "")
    if step is not None:
        for severity in topic.severities:
            if abs(_SEVERITIES.get(severity, step) - step) >= _CLEAR_STEPS:
                yield replace(finding, severity=severity), f"{severity} for {finding.severity}"
    here = finding.size_mm
    if here is not None:
        for size in topic.sizes:
            small, large = sorted((size, here))
            if large > _CLEAR_RATIO * small and (finding.concept != "Lung nodule" or large - small > _CLEAR_MM):
                yield replace(finding, size_mm=size), f"{size} mm for {here} mm"
