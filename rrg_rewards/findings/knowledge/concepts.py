"""Relations between concepts (wider, narrower, synonymous and similar ones), and the organs that they are in."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any, Literal

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.utilities.names import unknown_name_message

Kind = Literal["same", "unspecific", "overinterpretation", "severity", "descriptor", "certainty"]

# Relations that are looked up from both concepts. `interprets` has a direction, see `ConceptGraph.relation`.
_RELATIONS = ("same_as", "degree_of", "near", "kin", "interprets")


@dataclass(frozen=True, slots=True)
class Relation:
    """Relation of a candidate's concept to the reference's.

    Args:
        kind: ``same``; ``unspecific`` if the candidate's concept is wider, or if the reference's is a diagnosis of it;
            ``overinterpretation`` in the opposite case; ``severity`` if one is a degree of the other; ``descriptor`` if
            the two are commonly confused; ``certainty`` if the candidate names an alternative that the reference does
            not name.
        distance: 0 for the same concept; larger for more distant concepts.
        significant: Whether the difference could change the management of the patient.
    """

    kind: Kind
    distance: int
    significant: bool


SAME = Relation("same", 0, significant=False)
"""Relation of a concept to itself and to its synonyms."""
SIGN = Relation("unspecific", 5, significant=True)
"""Relation of a sign to the reference's diagnosis, looser than those of kinds; a diagnosis for a sign is invented."""


class ConceptGraph:
    """The concepts of a lexicon as a graph of wider, synonymous and similar concepts.

    Args:
        concepts: Entry of each concept in ``knowledge/concepts.yaml``.

    Raises:
        ValueError: If an entry names an unknown concept. The message names the nearest known one.

    Example:
        >>> graph = concept_graph()
        >>> sorted(graph.wider("tension_pneumothorax"))
        ['lucency', 'pneumothorax']
        >>> graph.relation("pneumonia", "lung_opacity").kind
        'unspecific'
        >>> graph.relation("pneumonia", "hiatal_hernia") is None
        True
    """

    def __init__(self, concepts: Mapping[str, Mapping[str, Any]]) -> None:
        self._signs: Mapping[str, Sequence[str]] = load_knowledge("concepts")["signs"]
        self._distances = {concept: _distances(concept, concepts) for concept in concepts}
        # The concepts that each concept is a diagnosis of.
        self._interpreted = {concept: frozenset(entry.get("interprets", ())) for concept, entry in concepts.items()}
        self._implied = {concept: named.union(self._distances[concept]) for concept, named in self._interpreted.items()}
        self._explained = {name: self._implied[name].union(concepts[name].get("explains", ())) for name in concepts}
        self._sideways: dict[tuple[str, str], str] = {}
        for concept, entry in concepts.items():
            for relation in _RELATIONS:
                for other in _known(entry.get(relation, ()), concepts):
                    self._sideways.setdefault((concept, other), relation)
                    self._sideways.setdefault((other, concept), relation)
        self._families = {concept: {concept, *wider} for concept, wider in self._distances.items()}
        for concept, wider in self._distances.items():
            for other in wider:
                self._families[other].add(concept)
        self._relatives = {name: {*family, *self._signs.get(name, ())} for name, family in self._families.items()}
        for first, second in self._sideways:
            self._relatives[first].add(second)
        self._akin: dict[tuple[str, str], bool] = {}

    def wider(self, concept: str) -> Mapping[str, int]:
        """Return the wider concepts of a concept, with the number of steps to each."""
        return self._distances.get(concept, {})

    def family(self, concept: str) -> Set[str]:
        """Return a concept with its wider and narrower concepts.

        Example:
            >>> "pneumothorax" in concept_graph().family("tension_pneumothorax")
            True
        """
        return self._families.get(concept, {concept})

    def relation(self, reference: str, candidate: str) -> Relation | None:
        """Return the relation of the candidate's concept to the reference's, or ``None`` if they are unrelated."""
        if reference == candidate:
            return SAME
        # Most pairs of two reports are unrelated.
        if candidate not in self._relatives.get(reference, ()):
            return None
        up, down = self._steps(reference, candidate), self._steps(candidate, reference)
        kind: Kind = "unspecific" if up else "overinterpretation" if down else "descriptor"
        relation = self._sideways.get((reference, candidate))
        if relation == "same_as":
            return SAME
        if relation == "degree_of":
            return Relation("severity", 1, significant=True)
        if relation in ("near", "kin"):
            return Relation(kind, 1, significant=relation == "kin")
        steps = up or down
        if steps is None:
            return SIGN if candidate in self._signs.get(reference, ()) else None
        return Relation(kind, 1 + steps, significant=True)

    def _steps(self, specific: str, general: str) -> int | None:
        """Return the number of steps from a concept to a wider one, or to one that it is a diagnosis of."""
        return 1 if general in self._interpreted.get(specific, ()) else self.wider(specific).get(general)

    def explains(self, general: str, specific: str) -> bool:
        """Whether a specific concept is a kind or a diagnosis of a general one, or can look like it."""
        return general in self.explained(specific)

    def implied(self, specific: str) -> frozenset[str]:
        """Return the concepts that a concept is a kind or a diagnosis of."""
        return self._implied.get(specific, frozenset())

    def explained(self, specific: str) -> frozenset[str]:
        """Return the concepts that a concept is a kind or a diagnosis of, or can look like."""
        return self._explained.get(specific, frozenset())

    def akin(self, first: str, second: str) -> bool:
        """Whether two concepts can describe one finding, as in "atelectasis or consolidation"."""
        found = self._akin.get((first, second))
        if found is None:
            found = self._akin[first, second] = (
                self.relation(first, second) not in (None, SIGN)
                or self.explains(first, second)
                or not self.wider(first).keys().isdisjoint(self.wider(second))
            )
        return found


def _known(names: Sequence[str], concepts: Mapping[str, Any]) -> Sequence[str]:
    """Return names of concepts, or raise ``ValueError`` for an unknown one."""
    for name in names:
        if name not in concepts:
            raise ValueError(unknown_name_message("concept", name, concepts))
    return names


def _distances(concept: str, concepts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of steps from a concept to each wider one."""
    found: dict[str, int] = {}
    level, steps = [concept], 0
    while level:
        steps += 1
        parents = [parent for name in level for parent in _known(concepts[name].get("is_a", ()), concepts)]
        level = [parent for parent in dict.fromkeys(parents) if parent not in found and parent != concept]
        found.update(dict.fromkeys(level, steps))
    return found


@cache
def concept_graph() -> ConceptGraph:
    """Return the graph of the concepts in ``knowledge/concepts.yaml``, one per process."""
    return ConceptGraph(load_knowledge("concepts")["concepts"])


def organs_differ(first: str | None, second: str | None) -> bool:
    """Whether two organs are known and neither equal nor neighbours in ``knowledge/concepts.yaml``.

    Example:
        >>> organs_differ("lung", "liver"), organs_differ("mediastinum", "hilum"), organs_differ("lung", None)
        (True, False, False)
    """
    return first != second and None not in (first, second) and (first, second) not in _neighbours()


@cache
def _neighbours() -> frozenset[tuple[str | None, str | None]]:
    groups = load_knowledge("concepts")["neighbours"]
    return frozenset(pair for group in groups for pair in permutations(group, 2))


def finding_organ(concept: str, site: str | None) -> str | None:
    """Return the organ of a finding.

    Args:
        concept: Concept of ``lexicon/chest.yaml``.
        site: The organ that the statement of the finding names; ``None`` if it names none.

    Returns:
        The named organ if a finding of this concept can be in it, else the organ that it is usually in.

    Example:
        >>> finding_organ("pleural_effusion", "liver"), finding_organ("fracture", "head")
        ('pleura', 'head')
    """
    usual, others = _organs().get(concept, (None, frozenset()))
    return site if usual is None or site in others else usual


def varies_in_organ(concept: str) -> bool:
    """Whether the organ of a finding of this concept depends on the organ that its statement names.

    Example:
        >>> varies_in_organ("pleural_effusion"), varies_in_organ("fracture")
        (False, True)
    """
    usual, others = _organs().get(concept, (None, frozenset()))
    return usual is None or bool(others)


@cache
def _organs() -> dict[str, tuple[str, frozenset[str]]]:
    """Return the usual organ of each concept that has one, and the other organs that it can be in."""
    return {
        concept: (entry["organ"], frozenset(entry.get("also_in", ())))
        for concept, entry in load_knowledge("concepts")["concepts"].items()
        if entry["organ"] != "any"
    }
