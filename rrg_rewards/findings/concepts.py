"""What concepts mean to each other: kinds, synonyms and neighbours."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rrg_rewards.findings.knowledge_base import read_knowledge
from rrg_rewards.findings.patient import Patient
from rrg_rewards.utilities.names import unknown_name_message

__all__ = ["ConceptGraph", "Relation", "concept_graph"]

Kind = Literal["same", "unspecific", "overinterpretation", "descriptor"]

_RELATIONS = ("same_as", "near", "kin")


@dataclass(frozen=True, slots=True)
class Relation:
    """How a candidate's concept stands to the reference's.

    Args:
        kind: ``same``; ``unspecific`` if it is wider, ``overinterpretation`` if it is narrower, ``descriptor`` if it
            is another thing that is commonly taken for it.
        distance: 0 for the same, larger the farther apart.
        significant: Whether the difference could change what is done for the patient.
    """

    kind: Kind
    distance: int
    significant: bool


SAME = Relation("same", 0, significant=False)


class ConceptGraph:
    """The concepts of a lexicon as a graph of kinds, with synonyms and neighbours.

    Args:
        concepts: For each concept its entry in ``knowledge/concepts.yaml``, which explains itself.

    Raises:
        ValueError: If an entry names an unknown concept, with the nearest known one.

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
        self._looks = {concept: frozenset(entry.get("explains", ())) for concept, entry in concepts.items()}
        self._distances = {concept: _distances(concept, concepts) for concept in concepts}
        # By pair of concepts: how near, and the contexts in which, where it is not always so.
        self._sideways: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
        for concept, entry in concepts.items():
            for relation in _RELATIONS:
                self._add(concept, entry.get(relation, ()), relation, None, concepts)
                for context, others in entry.get(relation.replace("_as", "") + "_if", {}).items():
                    self._add(concept, others, relation, context, concepts)

    def _add(
        self, concept: str, others: Iterable[str], relation: str, context: str | None, known: Mapping[str, Any]
    ) -> None:
        for other in others:
            if other not in known:
                raise ValueError(unknown_name_message("concept", other, known))
            for pair in ((concept, other), (other, concept)):
                self._sideways.setdefault(pair, []).append((relation, context))

    def wider(self, concept: str) -> Mapping[str, int]:
        """Concepts that this one is a kind of, with the number of steps to each."""
        return self._distances.get(concept, {})

    def relation(self, reference: str, candidate: str, patient: Patient | None = None) -> Relation | None:
        """How the candidate's concept stands to the reference's, or None if one says nothing of the other.

        Args:
            reference: Concept of the reference's finding.
            candidate: Concept of the candidate's finding.
            patient: Whose indication may make two concepts the same.
        """
        if reference == candidate:
            return SAME
        up, down = self.wider(reference).get(candidate), self.wider(candidate).get(reference)
        kind: Kind = "descriptor"
        if up is not None:
            kind = "unspecific"
        elif down is not None:
            kind = "overinterpretation"
        for relation, context in self._sideways.get((reference, candidate), ()):
            if context is not None and (patient is None or context not in patient.contexts):
                continue
            if relation == "same_as":
                return SAME
            return Relation(kind, 1, significant=relation == "kin")
        steps = up or down
        return None if steps is None else Relation(kind, 1 + steps, significant=True)

    def explains(self, general: str, specific: str) -> bool:
        """Whether a concept is what another may turn out to be: a kind of it, or a thing that looks like it."""
        return general in self.wider(specific) or general in self._looks.get(specific, ())

    def akin(self, first: str, second: str) -> bool:
        """Whether two concepts may be said of one thing: "atelectasis or consolidation" is one finding."""
        if self.relation(first, second) is not None or self.explains(first, second):
            return True
        return not self.wider(first).keys().isdisjoint(self.wider(second))


def _distances(concept: str, concepts: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Steps from a concept to each wider one."""
    found: dict[str, int] = {}
    level, steps = [concept], 0
    while level:
        steps += 1
        parents = [parent for name in level for parent in concepts[name].get("is_a", ())]
        for parent in parents:
            if parent not in concepts:
                raise ValueError(unknown_name_message("concept", parent, concepts))
        level = [parent for parent in dict.fromkeys(parents) if parent not in found and parent != concept]
        found.update(dict.fromkeys(level, steps))
    return found


@cache
def concept_graph() -> ConceptGraph:
    """The graph of the package's own concepts, one per process."""
    return ConceptGraph(read_knowledge("concepts")["concepts"])
