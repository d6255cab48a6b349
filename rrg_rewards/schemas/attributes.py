"""Which attributes of which findings are asked for, and how, as data."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import yaml

from rrg_rewards.schemas.questions import AnswerType
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["AttributeSpec", "FindingSpec", "QuestionSchema", "get_question_schema"]

_SHIPPED = files("rrg_rewards.schemas").joinpath("question_schemas")
_FEWEST_EXAMPLES = 5


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute of a finding, and the question that asks for it.

    Args:
        name: Such as ``size``; ``existence`` asks whether the finding is there.
        answer_type: How answers are compared: ``numeric``, ``categorical``, ``location`` or ``existence``.
        question: The question; tells no answer.
        explanation: What the attribute means, for people and language models.
        examples: Answers that it may have, at least five; for ``existence`` they may be fewer.
        values: For the finding engine, names of value groups or of single values of ``answer_vocabulary.yaml`` that
            a categorical attribute may have; by default those that its examples name.
        unit: For the finding engine, the kind of a numeric attribute: ``length``, ``attenuation``, ``share``,
            ``volume`` or ``ratio``.

    Raises:
        ValueError: If a text is blank, the type is unknown, or there are too few examples.

    Example:
        >>> spec = AttributeSpec("density", "categorical", "What is the nodule's density?", "Whether it is solid.",
        ...                      ("solid", "part-solid", "ground-glass", "calcified", "cavitary"))
        >>> spec.answer_type
        'categorical'
    """

    name: str
    answer_type: AnswerType
    question: str
    explanation: str
    examples: tuple[str, ...]
    values: tuple[str, ...] = ()
    unit: str = "length"

    def __post_init__(self) -> None:
        object.__setattr__(self, "examples", tuple(self.examples))
        object.__setattr__(self, "values", tuple(self.values))
        for name in ("name", "question", "explanation"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{name} of attribute {self.name!r} must be a text, got {value!r}")
        if self.answer_type not in get_args(AnswerType):
            raise ValueError(unknown_name_message("answer_type", str(self.answer_type), get_args(AnswerType)))
        if self.answer_type != "existence" and len(self.examples) < _FEWEST_EXAMPLES:
            raise ValueError(
                f"examples of attribute {self.name!r} must be at least {_FEWEST_EXAMPLES}, got {len(self.examples)}"
            )


@dataclass(frozen=True)
class FindingSpec:
    """A finding and its attributes.

    Args:
        name: The finding, as the label set names it.
        attributes: What is asked of it, its existence first.

    Raises:
        ValueError: If an attribute stands twice, or there is none.
    """

    name: str
    attributes: tuple[AttributeSpec, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        names = [attribute.name for attribute in self.attributes]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"attributes of {self.name!r} must be different and at least one, got {names}")

    def attribute(self, name: str) -> AttributeSpec:
        """The attribute of a name.

        Raises:
            ValueError: For an unknown one, with the nearest known one.
        """
        for attribute in self.attributes:
            if attribute.name.casefold() == name.casefold():
                return attribute
        known = [attribute.name for attribute in self.attributes]
        raise ValueError(unknown_name_message(f"attribute of {self.name}", name, known))


@dataclass(frozen=True)
class QuestionSchema:
    """Findings and their attributes.

    Args:
        name: Name by which the schema is told.
        findings: The findings, in the order of their tables.
        lexicon: Lexicon of the finding engine whose labels the findings are.

    Raises:
        ValueError: If a finding stands twice, or there is none.

    Example:
        >>> schema = get_question_schema("ct_rate")
        >>> len(schema.findings), [spec.name for spec in schema.finding("Lung nodule").attributes][:3]
        (18, ['existence', 'location', 'size'])
    """

    name: str
    findings: tuple[FindingSpec, ...]
    lexicon: str = "chest_ct"
    _by_name: dict[str, FindingSpec] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", tuple(self.findings))
        self._by_name.update((finding.name.casefold(), finding) for finding in self.findings)
        if not self.findings or len(self._by_name) != len(self.findings):
            names = [finding.name for finding in self.findings]
            raise ValueError(f"findings of {self.name!r} must be different and at least one, got {names}")

    def finding(self, name: str) -> FindingSpec:
        """The finding of a name, upper and lower case alike.

        Raises:
            ValueError: For an unknown one, with the nearest known one.
        """
        found = self._by_name.get(name.casefold())
        if found is None:
            raise ValueError(unknown_name_message("finding", name, [finding.name for finding in self.findings]))
        return found

    def __contains__(self, name: str) -> bool:
        return name.casefold() in self._by_name

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    @cached_property
    def digest(self) -> str:
        """Short hash of all that the schema says, for signatures."""
        return hashlib.sha256(repr((self.name, self.findings, self.lexicon)).encode()).hexdigest()[:8]


def get_question_schema(name: str | Path) -> QuestionSchema:
    """Look a question schema up by name, or read the user's own from a YAML file.

    ``ct_rate`` asks of the 18 findings of CT-RATE, ``merlin`` of the 30 of Merlin; both are of this package's own
    making and lie in ``rrg_rewards/schemas/question_schemas``, to start a schema of one's own from.

    Args:
        name: ``ct_rate``, ``merlin``, or the path of a ``.yaml`` file.

    Raises:
        ValueError: For an unknown schema, with the nearest known one, or a file that holds no valid schema.
        FileNotFoundError: If there is no such file.

    Example:
        >>> len(get_question_schema("merlin").findings)
        30
    """
    if str(name).endswith((".yaml", ".yml")):
        path = Path(name)
        return _parse(path.read_text(encoding="utf-8"), str(path))
    known = sorted(path.name.removesuffix(".yaml") for path in _SHIPPED.iterdir() if path.name.endswith(".yaml"))
    if name not in known:
        raise ValueError(unknown_name_message("question schema", str(name), known))
    return _shipped(str(name))


@cache
def _shipped(name: str) -> QuestionSchema:
    return _parse((_SHIPPED / f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml")


def _parse(text: str, source: str) -> QuestionSchema:
    content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if not isinstance(content, Mapping) or not {"name", "attributes", "findings"} <= set(content):
        raise ValueError(f"{source} must be a mapping with name, attributes and findings")
    try:
        findings = tuple(_finding(name, entry, content["attributes"]) for name, entry in content["findings"].items())
        return QuestionSchema(content["name"], findings, content.get("lexicon", "chest_ct"))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{source} is no question schema: {type(error).__name__} {error}") from None
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _finding(name: str, entry: Mapping[str, Any], shared: Mapping[str, Any]) -> FindingSpec:
    called = entry.get("called", name.lower())
    attributes = []
    for asked in ["existence", *entry["ask"]]:
        own: Mapping[str, Any] = {}
        if isinstance(asked, Mapping):
            ((asked, own),) = asked.items()
        fields = {**shared.get(asked, {}), **own}
        attributes.append(
            AttributeSpec(
                name=asked,
                answer_type=fields["type"],
                question=fields["question"].format(finding=called),
                explanation=fields["explanation"].format(finding=called),
                examples=tuple(map(str, fields["examples"])),
                values=tuple(fields.get("values", ())),
                unit=fields.get("unit", "length"),
            )
        )
    return FindingSpec(name, tuple(attributes))
