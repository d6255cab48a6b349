"""The wording of phantom reports, read from YAML: templates, topics and regions."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.random_draws import Draws
from rrg_rewards.utilities.yaml_files import package_yaml

STYLES = ("compact", "full")
"""Styles of phantom reports."""

OPTIONAL_SLOTS = frozenset({"change", "interpretation"})
"""Slots that may be empty. Their values include the comma before them."""

_CONDITIONS = ("denies", "unless", "when")
_TOKEN = re.compile(r"\{(?P<slot>\w+)\}|<(?P<phrase>\w+)>")


def capitalized(text: str) -> str:
    """Return a text with an uppercase first letter.

    Example:
        >>> capitalized("nodule in the LAD region")
        'Nodule in the LAD region'
    """
    return text[0].upper() + text[1:]


class Template:
    """A sentence with slots such as ``{size}`` and interchangeable phrases such as ``<seen>``.

    Args:
        text: The sentence.
        phrases: Wordings of each phrase.

    Raises:
        ValueError: If a phrase is unknown.

    Example:
        >>> import numpy as np
        >>> template = Template("Nodule of {size} mm <seen>.", {"seen": ["is seen"]})
        >>> template.slots, template.fill({"size": "6"}, Draws(np.random.default_rng(0)))
        (frozenset({'size'}), 'Nodule of 6 mm is seen.')
    """

    def __init__(self, text: str, phrases: Mapping[str, list[str]]) -> None:
        self.text = text
        # Each part is a slot or a list of wordings. Plain text is a list with one wording.
        self._parts: list[tuple[str | None, list[str]]] = []
        end = 0
        for match in _TOKEN.finditer(text):
            self._parts.append((None, [text[end : match.start()]]))
            slot, phrase = match["slot"], match["phrase"]
            if phrase and phrase not in phrases:
                raise ValueError(unknown_name_message("phrase", phrase, phrases))
            self._parts.append((slot, phrases[phrase] if phrase else []))
            end = match.end()
        self._parts.append((None, [text[end:]]))
        self.slots = frozenset(slot for slot, _ in self._parts if slot)

    def fill(self, values: Mapping[str, str], draws: Draws) -> str:
        """Fill the slots, draw a wording for each phrase, and capitalise the sentence."""
        text = "".join([values[slot] if slot else draws.pick(options) for slot, options in self._parts])
        return capitalized(text)

    def variants(self, values: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Yield sentences that together contain all words of the template. One slot or phrase varies at a time."""
        choices = [values[slot] if slot else options for slot, options in self._parts]
        for index, options in enumerate(choices):
            before, after = ([first[0] for first in part] for part in (choices[:index], choices[index + 1 :]))
            for option in options:
                yield capitalized("".join([*before, option, *after]))


@dataclass(frozen=True)
class Statement:
    """A sentence without attributes: normal anatomy, or a denial of labels.

    Args:
        template: The sentence.
        denies: Labels that the sentence denies by name.
        unless: Other labels that the sentence contradicts.
        when: Labels of which at least one must be positive. Default: no condition.
    """

    template: Template
    denies: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    when: tuple[str, ...] = ()

    def fits(self, positive: Container[str]) -> bool:
        """Whether the sentence can be stated if exactly these labels are positive."""
        is_true = not any(label in positive for label in (*self.denies, *self.unless))
        return is_true and (not self.when or any(label in positive for label in self.when))


@dataclass(frozen=True)
class Region:
    """A part of the chest that is reported together.

    Args:
        name: Name of the region.
        leads: Texts that may precede the first sentence.
        normals: Sentences about normal anatomy.
        negatives: Sentences that deny labels.
    """

    name: str
    leads: tuple[str, ...]
    normals: tuple[Statement, ...]
    negatives: tuple[Statement, ...]


@dataclass(frozen=True)
class Topic:
    """Sentences that state one finding, or several findings together.

    Args:
        concepts: Names of the findings: labels, or a finding outside the labels.
        region: Region of the report that contains the sentences.
        findings: Templates of the findings section.
        impression: Templates of the impression, without a full stop.
        where: Possible sites as (side, lobe).
        sizes: Possible sizes in mm.
        severities: Possible severities.
        kinds: Possible kinds, such as devices, lymph node stations or forms of emphysema.
        changes: Possible changes since the prior scan.
        interpretations: Hedged wordings of each suspected cause.
        uncertain: Whether the finding itself is hedged.
    """

    concepts: tuple[str, ...]
    region: str
    findings: tuple[Template, ...]
    impression: tuple[Template, ...]
    where: tuple[tuple[str, str | None], ...] = ()
    sizes: tuple[int, ...] = ()
    severities: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    interpretations: Mapping[str, list[str]] = field(default_factory=dict)
    uncertain: bool = False


class Wording:
    """The wording of a style.

    Args:
        config: Content of a wording file. ``wording_full.yaml`` documents the keys.

    Example:
        >>> load_wording("compact").topics[0].concepts
        ('Consolidation',)
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.phrases: Mapping[str, list[str]] = config["phrases"]
        self.rates: Mapping[str, float] = config["rates"]
        self.shuffle: bool = config["shuffle"]
        self.locations: Mapping[str, list[str]] = config["locations"]
        self.changes: Mapping[str, list[str]] = config.get("changes", {})
        self.comparisons = tuple(Template(text, self.phrases) for text in config.get("comparisons", ()))
        self.regions = tuple(self._region(entry) for entry in config["regions"])
        self.topics = tuple(self._topic(entry) for entry in config["topics"])
        self.distractors = tuple(self._topic(entry) for entry in config.get("distractors", ()))
        self.joint_topics = tuple(topic for topic in self.topics if len(topic.concepts) > 1)
        self.label_topics: dict[str, list[Topic]] = {}
        for topic in self.topics:
            if len(topic.concepts) == 1:
                self.label_topics.setdefault(topic.concepts[0], []).append(topic)
        self._positions = {id(topic): index for index, topic in enumerate(self.topics)}
        self.closings = self._statements(config.get("closings", ()))
        self.normal_impressions = tuple(Template(text, self.phrases) for text in config["normal_impressions"])

    def _statements(self, entries: Sequence[Mapping[str, Any]]) -> tuple[Statement, ...]:
        return tuple(
            Statement(Template(entry["text"], self.phrases), *(tuple(entry.get(name, ())) for name in _CONDITIONS))
            for entry in entries
        )

    def _region(self, entry: Mapping[str, Any]) -> Region:
        return Region(
            name=entry["name"],
            leads=tuple(entry.get("leads", ("",))),
            normals=self._statements(entry.get("normals", ())),
            negatives=self._statements(entry.get("negatives", ())),
        )

    def _topic(self, entry: Mapping[str, Any]) -> Topic:
        values: dict[str, Any] = {"changes": self.changes, "where": (), **entry}
        values["where"] = map(_site, values["where"])
        for name in ("findings", "impression"):
            values[name] = (Template(text, self.phrases) for text in entry[name])
        for name in values.keys() - {"region", "interpretations", "uncertain"}:
            values[name] = tuple(values[name])
        return Topic(**values)

    def position(self, topic: Topic) -> int:
        """Return the position of a topic in the file and in impressions."""
        return self._positions[id(topic)]

    def location_texts(self, side: str, lobe: str | None) -> list[str]:
        """Return the wordings of a place in the lungs."""
        part = "lobe" if lobe else "lung"
        shapes = self.locations[f"both_{part}s" if side == "bilateral" else part]
        return [shape.format(side=side, lobe=lobe) for shape in shapes]


def _site(text: str) -> tuple[str, str | None]:
    side, _, lobe = text.partition(" ")
    return side, lobe or None


@lru_cache(maxsize=len(STYLES))
def load_wording(style: str) -> Wording:
    """Return the wording of a style, loaded once per process.

    Args:
        style: ``full`` or ``compact``.

    Raises:
        ValueError: If the style is unknown. The message names the nearest known one.

    Example:
        >>> len(load_wording("compact").topics)
        18
    """
    if style not in STYLES:
        raise ValueError(unknown_name_message("style", style, STYLES))
    return Wording(package_yaml("rrg_rewards.data.phantom", f"wording_{style}"))
