"""The wording of phantom reports, as typed data read from YAML: templates, topics, regions."""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rrg_rewards.data.phantom_population import read_package_yaml
from rrg_rewards.utilities.draws import Draws
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["OPTIONAL_SLOTS", "STYLES", "Region", "Statement", "Template", "Topic", "Wording", "load_wording"]

STYLES = ("compact", "full")
"""Styles of phantom reports."""

OPTIONAL_SLOTS = frozenset({"change", "interpretation"})
"""Slots that may stay empty; each value begins with its own comma."""

_TOKEN = re.compile(r"\{(?P<slot>\w+)\}|<(?P<phrase>\w+)>")


def capitalized(text: str) -> str:
    """The text with a capital at its start, the rest as it is.

    Example:
        >>> capitalized("nodule in the LAD region")
        'Nodule in the LAD region'
    """
    return text[0].upper() + text[1:]


class Template:
    """A sentence with slots ``{size}`` and interchangeable phrases ``<seen>``.

    Args:
        text: The sentence.
        phrases: Wordings of each phrase.

    Raises:
        ValueError: If a phrase is not known.

    Example:
        >>> import numpy as np
        >>> template = Template("Nodule of {size} mm <seen>.", {"seen": ["is seen"]})
        >>> template.slots, template.fill({"size": "6"}, Draws(np.random.default_rng(0)))
        (frozenset({'size'}), 'Nodule of 6 mm is seen.')
    """

    def __init__(self, text: str, phrases: Mapping[str, list[str]]) -> None:
        self.text = text
        # Each part is a slot's name or the wordings to choose from; plain text is a choice of one.
        self._parts: list[tuple[str | None, list[str]]] = []
        place = 0
        for match in _TOKEN.finditer(text):
            self._parts.append((None, [text[place : match.start()]]))
            slot, phrase = match["slot"], match["phrase"]
            if phrase and phrase not in phrases:
                raise ValueError(unknown_name_message("phrase", phrase, phrases))
            self._parts.append((slot, phrases[phrase] if phrase else []))
            place = match.end()
        self._parts.append((None, [text[place:]]))
        self.slots = frozenset(slot for slot, _ in self._parts if slot)

    def fill(self, values: Mapping[str, str], draws: Draws) -> str:
        """The sentence with its slots filled, a wording drawn for each phrase, and a capital at its start."""
        text = "".join([values[slot] if slot else draws.pick(options) for slot, options in self._parts])
        return capitalized(text)

    def variants(self, values: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Sentences that together hold every word this template can emit: each slot and phrase varied by itself."""
        choices = [values[slot] if slot else options for slot, options in self._parts]
        for place, options in enumerate(choices):
            before, after = ([first[0] for first in part] for part in (choices[:place], choices[place + 1 :]))
            for option in options:
                yield capitalized("".join([*before, option, *after]))


@dataclass(frozen=True)
class Statement:
    """A sentence without attributes: normal anatomy, or one that denies labels.

    Args:
        template: The sentence.
        denies: Labels that it says are absent.
        unless: Labels that it does not deny by name and would yet contradict.
        when: Labels of which one must be positive for it to be to the point; none for a sentence that always is.
    """

    template: Template
    denies: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    when: tuple[str, ...] = ()

    def fits(self, positive: Container[str]) -> bool:
        """Whether the sentence is true and to the point where exactly these labels are positive."""
        if any(label in positive for label in (*self.denies, *self.unless)):
            return False
        return not self.when or any(label in positive for label in self.when)


@dataclass(frozen=True)
class Region:
    """A part of the chest that is reported together.

    Args:
        name: Its name.
        leads: What may stand before its first sentence.
        normals: Sentences about normal anatomy.
        negatives: Sentences that deny labels.
    """

    name: str
    leads: tuple[str, ...]
    normals: tuple[Statement, ...]
    negatives: tuple[Statement, ...]


@dataclass(frozen=True)
class Topic:
    """How one finding, or several told together, can be stated.

    Args:
        concepts: What is stated: label names, or the name of a finding outside the labels.
        region: Where in the report it stands.
        findings: Templates of the findings section.
        impression: Templates of the impression, without a full stop.
        where: Possible sites as (side, lobe).
        sizes: Possible sizes in mm.
        severities: Possible severities.
        kinds: Possible kinds: the device, the station of lymph nodes, the form of emphysema.
        changes: Possible changes since the earlier scan.
        interpretations: Hedged wordings by the suspected cause.
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
    """All wording of one style.

    Args:
        config: Content of a wording file; ``phantom_full.yaml`` explains the keys.

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
        self._places = {id(topic): place for place, topic in enumerate(self.topics)}
        self.closings = self._statements(config.get("closings", ()))
        self.normal_impressions = tuple(Template(text, self.phrases) for text in config["normal_impressions"])

    def _statements(self, entries: Sequence[Mapping[str, Any]]) -> tuple[Statement, ...]:
        return tuple(
            Statement(
                template=Template(entry["text"], self.phrases),
                denies=tuple(entry.get("denies", ())),
                unless=tuple(entry.get("unless", ())),
                when=tuple(entry.get("when", ())),
            )
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
        return Topic(
            concepts=tuple(entry["concepts"]),
            region=entry["region"],
            findings=tuple(Template(text, self.phrases) for text in entry["findings"]),
            impression=tuple(Template(text, self.phrases) for text in entry["impression"]),
            where=tuple(_site(text) for text in entry.get("where", ())),
            sizes=tuple(entry.get("sizes", ())),
            severities=tuple(entry.get("severities", ())),
            kinds=tuple(entry.get("kinds", ())),
            changes=tuple(entry.get("changes", self.changes)),
            interpretations=entry.get("interpretations", {}),
            uncertain=entry.get("uncertain", False),
        )

    def place(self, topic: Topic) -> int:
        """Where a topic stands in the file, which is where it stands in an impression."""
        return self._places[id(topic)]

    def location_texts(self, side: str, lobe: str | None) -> list[str]:
        """Wordings of a place in the lungs."""
        part = "lobe" if lobe else "lung"
        shapes = self.locations[f"both_{part}s" if side == "bilateral" else part]
        return [shape.format(side=side, lobe=lobe) for shape in shapes]


def _site(text: str) -> tuple[str, str | None]:
    side, _, lobe = text.partition(" ")
    return side, lobe or None


@lru_cache(maxsize=len(STYLES))
def load_wording(style: str) -> Wording:
    """The wording of a style, read once.

    Args:
        style: ``full`` or ``compact``.

    Raises:
        ValueError: For an unknown style, with the nearest known one.

    Example:
        >>> len(load_wording("compact").topics)
        18
    """
    if style not in STYLES:
        raise ValueError(unknown_name_message("style", style, STYLES))
    return Wording(read_package_yaml(f"phantom_{style}.yaml"))
