"""Structured labels from report text: type, place, severity and number of abnormalities, for CRG on several levels."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rrg_rewards.findings.reading.lexicon import load_lexicon
from rrg_rewards.questions.engine import stated_values
from rrg_rewards.questions.locations import Place
from rrg_rewards.questions.schema import AttributeSpec, FindingSpec, QuestionSchema, get_question_schema
from rrg_rewards.questions.stated import AttributeValues, check_readable
from rrg_rewards.questions.vocabulary import answer_vocabulary
from rrg_rewards.utilities.backend import Backend
from rrg_rewards.utilities.checks import check_reports
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.yaml_files import absolute_yaml_path

_SIDES = ("right", "left")
_LOBES = (
    ("right", "upper lobe"),
    ("right", "middle lobe"),
    ("right", "lower lobe"),
    ("left", "upper lobe"),
    ("left", "lower lobe"),
)


class LevelReader(Backend):
    """Reads structured labels of reports with the finding engine.

    A structured label is a finding with a value. It is positive if the report states the value for a present finding.
    The levels are

    - ``type``: values of the attributes ``type`` and ``density`` of a finding, such as "Lung opacity: ground-glass";
    - ``side``: ``right`` and ``left`` of findings in the lungs or the pleura; a bilateral finding has both;
    - ``lobe``: the five lobes of findings in the lungs. A segment and the lingula belong to their lobe. A lobe without
      a side is not counted.
    - ``severity``: the degrees ``minimal`` to ``severe`` of findings that have them;
    - ``count``: the number of lesions, ``single``, ``two`` to ``five`` and ``multiple``, of findings that have one;
    - crossed levels, such as ``type*side`` (the paper's CRG-2), whose values are combinations in one mention of the
      finding, such as "Lung opacity: ground-glass, right".

    The question schema determines findings, attributes and values: the findings with a location in the lungs have
    sides and lobes, and those with the values of an attribute have types.

    Source: Hamamci et al., "CRG Score", MIDL 2025, Section 2.2 (CRG-2).

    Args:
        levels: One or more of ``type``, ``side``, ``lobe``, ``severity`` and ``count``, or several of them joined by
            ``*``.
        schema: Name or YAML file of a question schema, or a schema.

    Raises:
        ValueError: If a level or the schema is unknown, a level occurs twice, no finding of the schema has a level, or
            the finding engine cannot read the schema.
        FileNotFoundError: If the file does not exist.

    Example:
        >>> reader = LevelReader(["side", "lobe"])
        >>> row = reader(["Nodules in the right upper lobe and the left lower lobe. No effusion."])[0]
        >>> [column for column, positive in zip(reader.labels, row.tolist()) if positive]
        ['Lung nodule: right', 'Lung nodule: left', 'Lung nodule: right upper lobe', 'Lung nodule: left lower lobe']
    """

    has_independent_rows = True
    """Whether the labels of a report are the same in any batch."""

    def __init__(self, levels: Sequence[str], schema: str | Path | QuestionSchema = "ct_rate") -> None:
        for level in levels:
            for part in level.split("*"):
                if part not in _LEVELS:
                    raise ValueError(unknown_name_message("level", part, _LEVELS))
        parts = [tuple(sorted(level.split("*"))) for level in levels]
        if not levels or len({*parts}) < len(levels) or any(len({*one}) < len(one) for one in parts):
            raise ValueError(f"levels must be one or more different names, got {list(levels)}")
        self.levels = tuple(levels)
        self._given = absolute_yaml_path(schema)
        self.schema = get_question_schema(schema)
        check_readable(self.schema)
        columns = {level: _columns(self.schema, level) for level in self.levels}
        for level, names in columns.items():
            if not names:
                raise ValueError(
                    f"level {level!r}: question schema {self.schema.name!r} has no finding with this level"
                )
        self.widths = tuple(map(len, columns.values()))
        """Number of labels of each level."""
        self.labels = tuple(name for names in columns.values() for name in names)
        """Names of the labels of all levels."""
        starts = accumulate(self.widths, initial=0)
        self._places: dict[tuple[str, str], int] = {
            (level, name): start + place
            for start, (level, names) in zip(starts, columns.items(), strict=False)
            for place, name in enumerate(names)
        }

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments that rebuild this reader."""
        return {"levels": self.levels, "schema": self._given}

    @property
    def findings(self) -> tuple[str, ...]:
        """Names of the findings of the schema."""
        return tuple(finding.name for finding in self.schema.findings)

    @property
    def signature(self) -> str:
        """Levels, and digests of the schema, the lexicon and the answer vocabulary."""
        digests = (self.schema.digest, load_lexicon(self.schema.lexicon).digest, answer_vocabulary().digest)
        return f"{','.join(self.levels)}@{self.schema.name}+{'+'.join(digests)}"

    def __call__(self, reports: Sequence[str]) -> Tensor:
        """Read reports.

        Args:
            reports: ``N`` report texts; an empty one has no positive label.

        Returns:
            Bool tensor ``(N, len(labels))``.

        Raises:
            TypeError: If ``reports`` is a single string or one of its rows is not a string.
        """
        check_reports("reports", reports)
        labels = torch.zeros(len(reports), len(self.labels), dtype=torch.bool)
        for row, report in enumerate(reports):
            stated = stated_values(report, self.schema)
            positive = {
                self._places[key]
                for finding, mentions in stated.items()
                for values in mentions
                for level in self.levels
                for value in _crossed(level, 1, values)
                if (key := (level, f"{finding}: {value}")) in self._places
            }
            labels[row, list(positive)] = True
        return labels


def _columns(schema: QuestionSchema, level: str) -> list[str]:
    """Return the names of the labels of a level."""
    return [f"{finding.name}: {value}" for finding in schema.findings for value in _crossed(level, 0, finding)]


def _crossed(level: str, side: int, given: Any) -> Iterator[str]:
    """Return the possible values of a finding (side 0) or those of a mention (side 1): combinations of all parts."""
    return map(", ".join, product(*(_LEVELS[part][side](given) for part in level.split("*"))))


def _specs(finding: FindingSpec, *names: str) -> list[AttributeSpec]:
    return [spec for spec in finding.attributes if spec.name in names]


def _possible(names: Sequence[str], finding: FindingSpec) -> list[str]:
    values = (sorted(AttributeValues(spec).values) for spec in _specs(finding, *names))
    return list(dict.fromkeys(value for group in values for value in group))


def _possible_sides(finding: FindingSpec) -> Sequence[str]:
    within = {value for spec in _specs(finding, "location") for value in spec.values}
    return _SIDES if within & {"lung", "fissural"} else ()


def _possible_lobes(finding: FindingSpec) -> Sequence[str]:
    # "lung" is the first value if the finding itself is in the lungs, and not only the tip of a device.
    in_lung = any(spec.values[:1] == ("lung",) for spec in _specs(finding, "location"))
    return [" ".join(lobe) for lobe in _LOBES] if in_lung else ()


def _stated(names: Sequence[str], values: Mapping[str, Iterable[object]]) -> Iterable[str]:
    return (str(value) for name in names for value in values.get(name, ()))


def _stated_places(values: Mapping[str, Iterable[object]]) -> Iterable[tuple[str | None, str | None]]:
    """Yield side and part of each stated place. The side of the lingula and of the middle lobe is their own."""
    parts = answer_vocabulary().parts
    for place in values.get("location", ()):
        if isinstance(place, Place):
            yield (parts[place.part].side if place.part else None) or place.side, place.part


def _stated_sides(values: Mapping[str, Iterable[object]]) -> Iterable[str]:
    return (side for side, _ in _stated_places(values) if side)


def _stated_lobes(values: Mapping[str, Iterable[object]]) -> Iterable[str]:
    within = answer_vocabulary().within
    return (
        f"{side} {name}"
        for side, part in _stated_places(values)
        if side and part
        for name in (part, *within.get(part, ()))
    )


# For each level the values that a finding may have, and those that a mention of it states.
_LEVELS: Mapping[str, tuple[Callable[[Any], Iterable[str]], Callable[[Any], Iterable[str]]]] = {
    **{
        level: (partial(_possible, names), partial(_stated, names))
        for level, names in (("type", ("type", "density")), ("severity", ("severity",)), ("count", ("number",)))
    },
    "side": (_possible_sides, _stated_sides),
    "lobe": (_possible_lobes, _stated_lobes),
}
