"""Build questions about findings from a reference report, and answer them from a candidate report."""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from rrg_rewards.findings.reading.finding import Presence
from rrg_rewards.questions.grading import is_open_bound, is_vacuous_bound, readable_measures
from rrg_rewards.questions.locations import Place, places_text
from rrg_rewards.questions.schema import (
    Answer,
    AttributeSpec,
    FindingLabels,
    QAItem,
    QuestionSchema,
    get_question_schema,
    items_on,
    positive_findings,
)
from rrg_rewards.questions.stated import Values, schema_findings
from rrg_rewards.questions.vocabulary import answer_tokens, answer_vocabulary

_SCHEMAS = ("ct_rate", "merlin")
# Words with the same first letters, as many as this, are related: nodule, nodular.
_STEM_LENGTH = 5
_EXISTENCE = {
    "present": Answer("yes", ["affirmed"]),
    "uncertain": Answer("possible", ["doubted"]),
    "absent": Answer("no", ["denied"]),
}


class _FindingAccount:
    """All statements of a report about one finding."""

    __slots__ = ("doubtful", "presence", "values")

    def __init__(self) -> None:
        self.presence: Presence = "absent"
        self.values: dict[int, list[object]] = {}
        self.doubtful: dict[int, list[object]] = {}

    def add(self, presence: Presence, values: Values) -> None:
        """Add one mention."""
        if presence == "present" or self.presence == "absent":
            self.presence = presence
        held = self.values if presence != "uncertain" else self.doubtful
        for attribute, stated in values:
            held.setdefault(attribute, []).extend(stated)

    def stated(self) -> dict[int, list[object]]:
        """Return the values of each attribute. Uncertain mentions are used only if the finding is uncertain."""
        return self.doubtful if self.presence == "uncertain" else self.values


def _accounts(report: str, schema: QuestionSchema) -> dict[int, _FindingAccount]:
    accounts = defaultdict[int, _FindingAccount](_FindingAccount)
    for index, finding, values in schema_findings(schema).of(report):
        accounts[index].add(finding.presence, values)
    return accounts


def stated_values(
    report: str, schema: str | Path | QuestionSchema = "ct_rate"
) -> dict[str, list[dict[str, tuple[object, ...]]]]:
    """Return the attributes that a report states for its present findings, with the finding engine.

    Args:
        report: Report text.
        schema: Name or YAML file of a question schema, or a schema.

    Returns:
        For each present finding of the schema its mentions that are not uncertain, each with the values of its stated
        attributes, by names: texts of numbers, :class:`~rrg_rewards.questions.locations.Place` for places, and names of
        values for others.

    Raises:
        TypeError: If ``report`` is not a string.
        ValueError: If the schema is unknown. The message names the nearest known one.

    Example:
        >>> stated_values("Calcified nodule in the right upper lobe. No effusion.")["Lung nodule"][0]["density"]
        ('calcified',)
    """
    schema = get_question_schema(schema)
    present, mentions = set[str](), defaultdict[str, list[dict[str, tuple[object, ...]]]](list)
    for index, finding, values in schema_findings(schema).of(report):
        spec = schema.findings[index]
        if finding.presence != "uncertain":
            mentions[spec.name].append({spec.attributes[i].name: stated for i, stated in values})
        if finding.presence == "present":
            present.add(spec.name)
    return {name: stated for name, stated in mentions.items() if name in present}


@lru_cache(maxsize=1 << 14)
def _answer(finding: str, spec: AttributeSpec, values: tuple[Any, ...]) -> Answer | None:
    """Return the values of an attribute as an answer, or ``None`` if they only repeat the finding's name."""
    if spec.answer_type == "numeric":
        answers = (Answer(text, measures) for text in values if (measures := readable_measures(text)))
        return max(answers, key=_largest, default=None)
    if spec.answer_type == "location":
        places = _informative_places(values)
        return Answer(places_text(places), places)
    names = [name for name in dict.fromkeys(values) if not _repeats_name(finding, name)]
    if len(values) > 1 and "single" in names:
        # A single nodule in each lung, or many nodules of which a single one is calcified.
        names.remove("single")
    broader = answer_vocabulary().broader
    names = [name for name in names if not any(name in broader.get(other, ()) for other in names)]
    return Answer(", ".join(names), names) if names else None


def _largest(answer: Answer) -> tuple[Fraction, int]:
    """Return the largest dimension of a number, and how many dimensions it has."""
    ranges = [ends for measure in answer.values for ends in measure.ranges]
    return max(end for ends in ranges for end in ends if end is not None), len(ranges)


def _informative_places(stated: Sequence[Place]) -> tuple[Place, ...]:
    """Return the places without those that others state more exactly."""
    places = tuple(dict.fromkeys(stated))
    repeated = {place for place in places if _is_repeated(place, places)}
    for pair in pairwise(stated):
        # "Bilateral, and in the right fissure": nothing more is said about the left, so both sides are kept.
        if _are_both_sides(*pair) and not repeated.issuperset(pair):
            repeated.difference_update(pair)
    return tuple(place for place in places if place not in repeated)


def _are_both_sides(one: Place, other: Place) -> bool:
    """Whether two places are the right and the left of the same part, as in "bilateral"."""
    return (one.side, other.side) == ("right", "left") and one._replace(side="left") == other


def _is_repeated(place: Place, places: Sequence[Place]) -> bool:
    """Whether another place is the same place with more information: a side, a part or more details."""
    for other in places:
        if other == place or (place.side and place.side != other.side):
            continue
        if place.part is None and not place.details and (other.part or other.details):
            return True
        has_more = place.details < other.details or (place.details == other.details and place.side is None)
        if place.part == other.part and has_more:
            return True
    return False


@lru_cache(maxsize=1 << 14)
def _repeats_name(finding: str, answer: str) -> bool:
    """Whether an answer only repeats words of the finding's name: "fibrotic" for "Pulmonary fibrotic sequela"."""
    stems = {token[:_STEM_LENGTH] for token in answer_tokens(finding)}
    return all(token[:_STEM_LENGTH] in stems for token in answer_tokens(answer))


@lru_cache(maxsize=1 << 14)
def _gives_away(question: str, answer: str) -> bool:
    """Whether the question contains the words of the answer."""
    words, sought = answer_tokens(question), answer_tokens(answer)
    return any(words[i : i + len(sought)] == sought for i in range(len(words) - len(sought) + 1))


def build_items(
    report: str,
    schema: str | Path | QuestionSchema = "ct_rate",
    include_uncertain: bool = False,
    labels: FindingLabels | None = None,
    informative_only: bool = False,
) -> tuple[QAItem, ...]:
    """Build the questions that a reference report answers (CT-FineBench, Section 3.2), with the finding engine.

    A present finding gets one question about its existence and one about each attribute that the report states. Each
    question covers all lesions of its finding: the answer contains all locations or values, or the largest size
    (:data:`rrg_rewards.questions.schema.SEVERAL_LESIONS`).

    Args:
        report: Report text.
        schema: Name or YAML file of a question schema, or a schema.
        include_uncertain: Whether to ask about uncertain findings, too. The answer about their existence is "possible".
        labels: Labels of the report, as :func:`rrg_rewards.questions.positive_findings` reads them. Only
            findings that they call positive get questions, and only if the report states them, too.
        informative_only: Whether to leave out questions on bounds that nearly every value satisfies ("less than 30
            cm"), and with ``include_uncertain`` those on all bounds, because any value within a bound confirms it.

    Returns:
        Questions in the order of the schema. Empty if the report states no finding of the schema.

    Raises:
        TypeError: If ``report`` is not a string, or ``labels`` are no labels.
        ValueError: If the schema is unknown (the message names the nearest known one), or the labels do not fit it.

    Example:
        >>> for item in build_items("Spiculated nodule of 12 mm in the right upper lobe. No effusion."):
        ...     print(item.finding, item.attribute, item.answer)
        Lung nodule existence yes
        Lung nodule location right upper lobe
        Lung nodule size 12 mm
        Lung nodule margin spiculated
    """
    schema = get_question_schema(schema)
    asked = [
        (schema.places[finding, spec.name][0], _item(finding, spec, answer))
        for finding, spec, presence, answer in _answers(report, schema)
        if _is_asked(spec, presence, answer, include_uncertain, informative_only)
    ]
    items = [item for _, item in sorted(asked, key=itemgetter(0))]
    return items_on(items, None if labels is None else positive_findings(labels, schema))


# A report is asked for its questions and for its answers, after the other reports of its batch.
@lru_cache(maxsize=1 << 10)
def _answers(report: str, schema: QuestionSchema) -> list[tuple[str, AttributeSpec, str, Answer]]:
    """Return finding, attribute, presence and answer for each question that a report answers."""
    found: list[tuple[str, AttributeSpec, str, Answer]] = []
    for index, account in _accounts(report, schema).items():
        finding, presence = schema.findings[index], account.presence
        for spec in finding.existence:
            found.append((finding.name, spec, presence, _EXISTENCE[presence]))
        for i, values in account.stated().items():
            spec = finding.attributes[i]
            if answer := _answer(finding.name, spec, tuple(values)):
                found.append((finding.name, spec, presence, answer))
    return found


def _is_asked(spec: AttributeSpec, presence: str, answer: str, of_candidate: bool, informative_only: bool) -> bool:
    """Whether a question is made from an answer: the finding is meant, and the answer says something."""
    if presence != "present" and not (of_candidate and presence == "uncertain"):
        return False
    # A bound says little; of a candidate any, because any value within confirms it.
    is_bound = is_open_bound if of_candidate else is_vacuous_bound
    says_little = informative_only and spec.answer_type == "numeric" and is_bound(answer)
    return not says_little and not _gives_away(spec.question, answer)


class StatedAnswer(NamedTuple):
    """A report's answer to a question, and whether the question is made from it as a reference and as a candidate."""

    answer: str
    of_reference: bool
    of_candidate: bool


def stated_answers(
    report: str, schema: QuestionSchema, informative_only: bool = False
) -> dict[tuple[str, str], StatedAnswer]:
    """Return the answers of a report to all questions of a schema, by finding and attribute.

    :func:`answer_items` returns these answers, and :func:`build_items` asks the questions of a reference or (with
    uncertain findings) of a candidate.

    Example:
        >>> stated_answers("Possible nodule. No effusion.", get_question_schema("ct_rate"))["Lung nodule", "existence"]
        StatedAnswer(answer='possible', of_reference=False, of_candidate=True)
    """
    return {
        (finding, spec.name): StatedAnswer(
            answer,
            _is_asked(spec, presence, answer, of_candidate=False, informative_only=informative_only),
            _is_asked(spec, presence, answer, of_candidate=True, informative_only=informative_only),
        )
        for finding, spec, presence, answer in _answers(report, schema)
    }


@lru_cache(maxsize=1 << 14)
def _item(finding: str, spec: AttributeSpec, answer: str) -> QAItem:
    return QAItem(finding, spec.name, spec.question, answer, spec.answer_type, spec.explanation, spec.examples)


def answer_items(
    report: str, items: Sequence[QAItem], schema: str | Path | QuestionSchema | None = None
) -> list[str | None]:
    """Answer questions from a candidate report, with the finding engine.

    The report is read as in :func:`build_items`. Questions that were built from it therefore get exactly their answers.

    Args:
        report: Report text.
        items: Questions. Their answers are ignored.
        schema: Schema of the questions. Default: the schema of this package that contains all their findings.

    Returns:
        The answer to each question, ``None`` if the report does not contain it. Answers about existence are ``"yes"``,
        ``"possible"``, ``"no"`` if the report denies the finding, or ``None``.

    Raises:
        TypeError: If ``report`` is not a string.
        ValueError: If the schema lacks a finding or an attribute. The message names the nearest known one.

    Example:
        >>> items = build_items("Spiculated nodule of 12 mm in the right upper lobe.")
        >>> answer_items("A 9 mm nodule.", items)
        ['yes', None, '9 mm', None]
    """
    schema = _schema_of(items) if schema is None else get_question_schema(schema)
    answers = {(finding, spec.name): answer for finding, spec, _, answer in _answers(report, schema)}
    return [answers.get(schema.names(item.finding, item.attribute)) for item in items]


def _schema_of(items: Sequence[QAItem]) -> QuestionSchema:
    schemas = [get_question_schema(name) for name in _SCHEMAS]
    for schema in schemas:
        if all(finding in schema for finding in {item.finding for item in items}):
            return schema
    # No schema has all findings. The one with the most findings then raises the error about a missing one.
    return max(schemas, key=lambda schema: sum(item.finding in schema for item in items))
