"""Questions on what a report says of its findings, made of a reference and answered by a candidate."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from rrg_rewards.findings.described import Described, Size, describer
from rrg_rewards.findings.scope import PRESENT, UNCERTAIN
from rrg_rewards.functional.answer_words import answer_tokens, answer_vocabulary
from rrg_rewards.functional.places import Place, places_text
from rrg_rewards.schemas import AttributeSpec, QAItem, QuestionSchema, get_question_schema

__all__ = ["answer_items", "build_items"]

_SCHEMAS = ("ct_rate", "merlin")
# Letters by which words are of one family: nodule, nodular.
_STEM = 5
_EXISTENCE = {"present": "yes", "uncertain": "possible", "absent": "no"}


class _Account:
    """All that a report says of one finding."""

    def __init__(self) -> None:
        self.presence = "absent"
        self.values: dict[int, list[object]] = {}
        self.doubtful: dict[int, list[object]] = {}

    def add(self, described: Described) -> None:
        """Take in one more mention."""
        if described.presence == PRESENT:
            self.presence = "present"
        elif described.presence == UNCERTAIN and self.presence == "absent":
            self.presence = "uncertain"
        held = self.values if described.presence != UNCERTAIN else self.doubtful
        for place, values in described.values:
            held.setdefault(place, []).extend(values)

    def stated(self) -> dict[int, list[object]]:
        """Values by attribute; those of doubtful mentions only where there is no other mention."""
        return self.doubtful if self.presence == "uncertain" else self.values


def _accounts(report: str, schema: QuestionSchema) -> dict[int, _Account]:
    if not isinstance(report, str):
        raise TypeError(f"report must be a report text, got {type(report).__name__}")
    found: dict[int, _Account] = {}
    # The mention that a sentence may go on about.
    last: Described | None = None
    for sentence in describer(schema).sentences(report):
        if sentence and sentence[0].presence is None:
            if last is not None and last.finding is not None and last.presence in (PRESENT, UNCERTAIN):
                more = sentence[last.finding]
                found[last.finding].add(Described(last.finding, last.presence, more.values))
            continue
        for described in sentence:
            if described.finding is not None:
                found.setdefault(described.finding, _Account()).add(described)
        last = sentence[-1] if sentence else None
    return found


def _answer(finding: str, spec: AttributeSpec, values: Sequence[object]) -> str | None:
    """The values of an attribute in a few words; ``None`` where they say no more than the finding's name."""
    if spec.answer_type == "numeric":
        sizes = [value for value in values if isinstance(value, Size)]
        return max(sizes, key=lambda size: size.largest).text
    if spec.answer_type == "location":
        places = tuple(dict.fromkeys(value for value in values if isinstance(value, Place)))
        return places_text(tuple(place for place in places if not _is_repeated(place, places)))
    names = [name for name in dict.fromkeys(str(value) for value in values) if not _names(finding, name)]
    broader = answer_vocabulary().broader
    return ", ".join(name for name in names if not any(name in broader.get(other, ()) for other in names)) or None


def _is_repeated(place: Place, places: Sequence[Place]) -> bool:
    """Whether another place says the same more exactly; not that "both lungs" holds a lobe that is named, too."""
    for other in places:
        if other == place or (place.side and place.side != other.side):
            continue
        if place.part is None and not place.details and (other.part or other.details):
            return True
        if place.part == other.part and place.details < other.details:
            return True
        if place.part == other.part and place.details == other.details and place.side is None:
            return True
    return False


@lru_cache(maxsize=1 << 14)
def _names(finding: str, answer: str) -> bool:
    """Whether an answer only says once more what the finding is called: "fibrotic" of a fibrotic sequela."""
    stems = {token[:_STEM] for token in answer_tokens(finding)}
    return all(token[:_STEM] in stems for token in answer_tokens(answer))


@lru_cache(maxsize=1 << 14)
def _gives_away(question: str, answer: str) -> bool:
    """Whether the words of the answer stand in the question."""
    asked, told = answer_tokens(question), answer_tokens(answer)
    return any(asked[i : i + len(told)] == told for i in range(len(asked) - len(told) + 1))


def build_items(report: str, schema: str | Path | QuestionSchema = "ct_rate") -> tuple[QAItem, ...]:
    """Make the questions that a reference report answers (CT-FineBench, Section 3.2), by the finding engine.

    A finding that is present gets a question for its existence, and one for each attribute that the report states of
    it. One finding may be mentioned several times: places, kinds and degrees are those of all mentions together, the
    size is the largest, so that each question has one answer.

    Args:
        report: Report text.
        schema: Name or YAML file of the question schema, or the schema.

    Returns:
        Questions in the schema's order; none for a report without its findings.

    Raises:
        TypeError: If ``report`` is no string.
        ValueError: For an unknown schema, with the nearest known one.

    Example:
        >>> for item in build_items("Spiculated nodule of 12 mm in the right upper lobe. No effusion."):
        ...     print(item.finding, item.attribute, item.answer)
        Lung nodule existence yes
        Lung nodule location right upper lobe
        Lung nodule size 12 mm
        Lung nodule margin spiculated
    """
    schema = schema if isinstance(schema, QuestionSchema) else get_question_schema(schema)
    accounts, items = _accounts(report, schema), []
    for place, finding in enumerate(schema.findings):
        account = accounts.get(place)
        if account is None or account.presence != "present":
            continue
        stated = account.stated()
        for i, spec in enumerate(finding.attributes):
            if spec.answer_type == "existence":
                answer: str | None = "yes"
            else:
                answer = _answer(finding.name, spec, stated[i]) if i in stated else None
            if answer is not None and not _gives_away(spec.question, answer):
                items.append(_item(finding.name, spec, answer))
    return tuple(items)


@lru_cache(maxsize=1 << 14)
def _item(finding: str, spec: AttributeSpec, answer: str) -> QAItem:
    return QAItem(finding, spec.name, spec.question, answer, spec.answer_type, spec.explanation, spec.examples)


def answer_items(
    report: str, items: Sequence[QAItem], schema: str | Path | QuestionSchema | None = None
) -> list[str | None]:
    """Answer questions from a candidate report, by the finding engine.

    Answers are read as :func:`build_items` reads them, so a report answers its own questions with the very answers.

    Args:
        report: Report text.
        items: Questions; their answers are not looked at.
        schema: The schema that they are of; by default the shipped one that knows all their findings.

    Returns:
        For each question the answer; ``None`` where the report gives none. Existence is ``"yes"``, ``"possible"``,
        ``"no"`` where it is denied, or ``None``.

    Raises:
        TypeError: If ``report`` is no string.
        ValueError: For a finding or attribute that the schema does not have, with the nearest one.

    Example:
        >>> items = build_items("Spiculated nodule of 12 mm in the right upper lobe.")
        >>> answer_items("A 9 mm nodule.", items)
        ['yes', None, '9 mm', None]
    """
    if schema is None:
        schema = _schema_of(items)
    elif not isinstance(schema, QuestionSchema):
        schema = get_question_schema(schema)
    accounts = _accounts(report, schema)
    return [_answered(accounts, schema, item) for item in items]


def _schema_of(items: Sequence[QAItem]) -> QuestionSchema:
    schemas = [get_question_schema(name) for name in _SCHEMAS]
    for schema in schemas:
        if all(item.finding in schema for item in items):
            return schema
    # The one that knows most says what it lacks.
    return max(schemas, key=lambda schema: sum(item.finding in schema for item in items))


def _answered(accounts: dict[int, _Account], schema: QuestionSchema, item: QAItem) -> str | None:
    finding = schema.finding(item.finding)
    spec = finding.attribute(item.attribute)
    account = accounts.get(schema.findings.index(finding))
    if account is None:
        return None
    if spec.answer_type == "existence":
        return _EXISTENCE[account.presence]
    values = account.stated().get(finding.attributes.index(spec))
    return _answer(finding.name, spec, values) if values else None
