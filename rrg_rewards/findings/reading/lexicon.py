"""Compile the words, compounds and rules of a lexicon from YAML."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rrg_rewards.findings.reading.lexicon_file import read_lexicon_file
from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.findings.reading.phrases import Phrase, PhraseCompiler, PhraseTable, WordBits, union
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.package_data import package_yaml, package_yaml_digest, package_yaml_names
from rrg_rewards.utilities.user_yaml import is_yaml_path

__all__ = ["CUES", "Lexicon", "Rule", "load_lexicon", "shipped_lexicon"]

_PACKAGE = "rrg_rewards.findings.lexicon"
_SHARED = "cues"
_MODALITIES: dict[str, Modality] = {"chest_ct": "ct", "abdomen": "ct", "chest_xray": "xray"}
# Kinds of cues in the order of their bits. `cues.yaml` contains the words of each.
CUES = (
    *("boundary", "comma", "joint", "verb", "predicate", "be", "have", "exist", "show", "relative"),
    *("not", "none", "ended", "history", "former", "current", "other", "open", "doubt", "query"),
    *("normal", "abnormal", "place", "degree", "with", "surgery", "purpose"),
    *("request", "unstated", "asking", "would"),
)


@dataclass(frozen=True, slots=True)
class Rule(Phrase[int]):
    """A phrase that names a concept if the words around the phrase satisfy conditions.

    Args:
        first: Bits of the first word.
        rest: The further words.
        words: Bits of all words of the phrase and of ``needs``.
        meaning: Index of the concept.
        needs: Bits that must all occur in the clause.
        bars: Bits that must not occur in the clause.
        at: Bits of the sites that the nearest site must be one of; 0 for any site.
        not_at: Bits of the sites that the nearest site must not be.
        not_next: Bits that must not occur in the two words after the phrase.
        not_previous: Bits that must not occur in the two words before the phrase.
        not_within: Bits that the phrase must not contain, also between its words.
        wide: Whether ``needs`` and ``bars`` apply to the sentence instead of the clause.
        absent: Whether the phrase itself denies the finding.
        conditional_on: Bits that decide whether the conditions are checked: they are if the sentence contains one.
    """

    needs: int = 0
    bars: int = 0
    not_at: int = 0
    not_next: int = 0
    not_previous: int = 0
    not_within: int = 0
    wide: bool = False
    absent: bool = False
    conditional_on: int = 0


class SiteTable(dict[int, str | None]):
    """Maps the site bits of a word to its site, computed when they are first looked up.

    Args:
        bits: Bits of each site. Of several sites of a word, the first one counts.
    """

    def __init__(self, bits: Mapping[str, int]) -> None:
        super().__init__()
        self.bits = bits

    def __missing__(self, code: int) -> str | None:
        self[code] = site = next((name for name, bits in self.bits.items() if code & bits), None)
        return site


@dataclass(frozen=True, eq=False)
class Lexicon:
    """A compiled lexicon, as :func:`load_lexicon` returns it.

    Args:
        name: Name of the lexicon's file.
        digest: Short hash of its contents.
        base: Name of the lexicon that it extends; of a lexicon of this package, its own name.
        concepts: Concept identifiers, in the order of their indices in rules and bit masks.
        labels: Concepts of each label; empty for a lexicon without labels.
        words: Codes of words.
        compounds: Phrases that are replaced by one word.
        rules: Phrases that name concepts.
        heads: Bits of the words of which a sentence must have one to name a concept: the first words of the rules, and
            those of the compounds that become such a word.
        sites: Mask of all site bits.
        organs: Site of each code.
        exclusive: Whether only the longest of overlapping phrases counts.
    """

    name: str
    digest: str
    base: str
    concepts: tuple[str, ...]
    labels: dict[str, tuple[str, ...]]
    words: WordBits
    compounds: PhraseTable[Phrase[str]]
    rules: PhraseTable[Rule]
    heads: int
    sites: int
    organs: "SiteTable"
    exclusive: bool

    @property
    def modality(self) -> Modality | None:
        """Modality of the reports that the labels are made for; ``None`` for both."""
        return _MODALITIES.get(self.base)

    def organ(self, code: int) -> str | None:
        """Return the site of a word with this code, or ``None``."""
        return self.organs[code & self.sites]


def _compile_rule(
    compiler: PhraseCompiler, sites: Mapping[str, str], concept: int, entry: str | dict[str, Any]
) -> Rule:
    fields: dict[str, Any] = {"phrase": entry} if isinstance(entry, str) else entry
    first, rest = compiler.steps(fields["phrase"])
    words = first | union(step[0] for step in rest)
    keys = ("with", "without", "not_next", "not_previous", "not_within")
    choices = {key: compiler.any_of(fields.get(key, ())) for key in keys}
    places = {
        key: compiler.any_of("|".join(sites[site].split()) for site in fields.get(key, ())) for key in ("at", "not_at")
    }
    return Rule(
        first=first,
        rest=rest,
        words=words | choices["with"],
        meaning=concept,
        needs=choices["with"],
        bars=choices["without"],
        at=places["at"],
        not_at=places["not_at"],
        not_next=choices["not_next"],
        not_previous=choices["not_previous"],
        not_within=choices["not_within"],
        wide=fields.get("scope") == "sentence",
        absent=fields.get("says") == "absent",
        # The conditions of a rule that requires a site must be checked even in a sentence without a site.
        conditional_on=union([*choices.values(), *places.values(), words if places["at"] else 0]),
    )


def load_lexicon(name: str | Path) -> Lexicon:
    """Load a lexicon, compiled once per process.

    Args:
        name: Name of a file in ``rrg_rewards/findings/lexicon``, without ``.yaml``; or the path of a ``.yaml`` file in
            the format of ``docs/labelers.md``.

    Raises:
        ValueError: If the name is unknown (the message names the nearest known one), or an entry of the file is wrong.
        FileNotFoundError: If the file does not exist.

    Example:
        >>> "pleural_effusion" in load_lexicon("chest_ct").concepts
        True
    """
    if not is_yaml_path(name):
        return shipped_lexicon(str(name))
    own = read_lexicon_file(Path(name), _shipped_content, package_yaml(_PACKAGE, _SHARED))
    digest = hashlib.sha256(repr((own, package_yaml_digest(_PACKAGE, _SHARED))).encode()).hexdigest()[:8]
    if digest not in _of_files:
        _of_files[digest] = _compile(own["name"], digest, own)
    return _of_files[digest]


# The compiled lexicons of users' files, by digest, so that an edited file is read anew.
_of_files: dict[str, Lexicon] = {}


@cache
def shipped_lexicon(name: str) -> Lexicon:
    """Return a lexicon of this package, compiled once per process."""
    content = _shipped_content(name)
    return _compile(name, package_yaml_digest(_PACKAGE, _SHARED, name), content)


def _shipped_content(name: str) -> Mapping[str, Any]:
    names = [known for known in package_yaml_names(_PACKAGE) if known != _SHARED]
    if name not in names:
        raise ValueError(unknown_name_message("lexicon", str(name), names))
    return package_yaml(_PACKAGE, name)


def _compile(name: str, digest: str, own: Mapping[str, Any]) -> Lexicon:
    shared = package_yaml(_PACKAGE, _SHARED)
    sites: dict[str, str] = own.get("sites", {})
    cues = {cue: "|".join(shared["cues"][cue].split()) for cue in CUES}
    compiler = PhraseCompiler({**shared["groups"], **own.get("groups", {})}, cues["boundary"], cues["comma"])
    for choice in cues.values():
        compiler.bit(choice)
    # "Nodule without calcification" is no calcified nodule.
    compiler.end_at(cues["none"])
    concepts = tuple(own["concepts"])
    compounds = [
        compiler.phrase(phrase, meaning)
        for meaning, phrases in [*shared["compounds"].items(), *own.get("compounds", {}).items()]
        for phrase in phrases
    ]
    rules = [
        _compile_rule(compiler, sites, index, entry)
        for index, concept in enumerate(concepts)
        for entry in own["concepts"][concept]
    ]
    naming = PhraseTable(rules, compiler.words)
    naming_compounds = (one.first for one in compounds if compiler.words[one.meaning] & naming.heads)
    organs = SiteTable({site: compiler.any_of(["|".join(words.split())]) for site, words in sites.items()})
    return Lexicon(
        name=name,
        digest=digest,
        base=own.get("extends", name),
        concepts=concepts,
        labels={label: tuple(members) for label, members in own.get("labels", {}).items()},
        words=compiler.words,
        # Longest first, because "no significant change" must be matched before "no".
        compounds=PhraseTable(sorted(compounds, key=lambda compound: -len(compound.rest)), compiler.words),
        rules=naming,
        heads=naming.heads | union(naming_compounds),
        sites=union(organs.bits.values()),
        organs=organs,
        exclusive=own.get("exclusive", False),
    )
