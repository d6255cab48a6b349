"""Compile the words, compounds and rules of a lexicon from YAML, and check lexicon files of users.

The format of the files is described in ``docs/labelers.md``.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from rrg_rewards.findings.knowledge.load import load_knowledge
from rrg_rewards.findings.reading.cue_codes import CUES
from rrg_rewards.findings.reading.modality import Modality
from rrg_rewards.findings.reading.phrases import (
    CompoundTable,
    Memo,
    Phrase,
    PhraseCompiler,
    PhraseTable,
    WordBits,
    union,
)
from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.utilities.names import shown, unknown_name_message
from rrg_rewards.utilities.yaml_files import (
    check_keys,
    is_yaml_path,
    package_yaml,
    package_yaml_digest,
    package_yaml_names,
    read_user_yaml,
)

_PACKAGE = "rrg_rewards.findings.lexicon"
_SHARED = "cues"
# The lexicon of the concepts in knowledge/concepts.yaml.
_NAMED = "chest"
_MODALITIES: dict[str, Modality] = {"chest_ct": "ct", "abdomen": "ct", "chest_xray": "xray"}
# Sections of a lexicon file, those that an extended lexicon adds to, and keys of a rule.
_SECTIONS = ("name", "extends", "exclusive", "groups", "sites", "compounds", "concepts", "labels")
_MERGED = ("groups", "sites", "compounds", "concepts")
_CHOICES = ("with", "without", "not_next", "not_previous", "not_within")
_SITES = ("at", "not_at")
_RULE = ("phrase", *_CHOICES, *_SITES, "above", "says", "scope")
# The only label that follows from the others.
_NO_FINDING = "No Finding"
_GAP = re.compile(r"<\d{1,2},?>")
_GROUP = re.compile(r"\{([^ |]*)\}")


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
        above: Size in mm that the size after the phrase must exceed; 0 for none.
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
    above: float = 0.0
    wide: bool = False
    absent: bool = False
    conditional_on: int = 0


@dataclass(frozen=True, eq=False)
class Lexicon:
    """A compiled lexicon, as :func:`load_lexicon` returns it.

    Args:
        name: Name of the lexicon's file.
        digest: Short hash of its contents.
        base: Name of the lexicon that it extends; of a lexicon of this package, its own name.
        concepts: Concept identifiers, in the order of their indices in rules and bit masks.
        labels: Concepts of each label; empty for a lexicon without labels.
        vocabulary: Codes of words, with the bits of all phrases.
        compounds: Phrases that are replaced by one word.
        rules: Phrases that name concepts, in the order of their ranks.
        firsts: Bits of the first words of all of these.
        names: Bits of the single words that name a concept.
        heads: Bits of the words of which a sentence must have one to name a concept: the first words of the rules, and
            those of the compounds that become such a word.
        sites: Mask of all site bits.
        organs: Bits of each site.
        site_names: Site of the site bits of a word; of several sites of a word, the first one.
        exclusive: Whether only the longest of overlapping phrases counts.
    """

    name: str
    digest: str
    base: str
    concepts: tuple[str, ...]
    labels: dict[str, tuple[str, ...]]
    vocabulary: WordBits
    compounds: CompoundTable
    rules: PhraseTable[Rule]
    firsts: int
    names: int
    heads: int
    sites: int
    organs: Mapping[str, int]
    site_names: Memo[int, str | None]
    exclusive: bool

    @property
    def modality(self) -> Modality | None:
        """Modality of the reports that the labels are made for; ``None`` for both."""
        return _MODALITIES.get(self.base)

    def organ(self, code: int) -> str | None:
        """Return the site of a word with this code, or ``None``."""
        return self.site_names[code & self.sites]


def _compile_rule(
    compiler: PhraseCompiler, sites: Mapping[str, str], concept: int, entry: str | dict[str, Any]
) -> Rule:
    fields: dict[str, Any] = {"phrase": entry} if isinstance(entry, str) else entry
    phrase = compiler.phrase(fields["phrase"], concept)
    choices = {key: compiler.any_of(fields.get(key, ())) for key in _CHOICES}
    absent = fields.get("says") == "absent"
    if absent and "not" not in fields["phrase"]:
        # "The heart is not normal in size" does not deny a large heart.
        choices["not_within"] |= compiler.any_of(("not",))
    places = {key: compiler.any_of("|".join(sites[site].split()) for site in fields.get(key, ())) for key in _SITES}
    limits = {"needs": choices.pop("with"), "bars": choices.pop("without"), **choices, **places}
    # The conditions of a rule that requires a site must be checked even in a sentence without a site.
    conditional_on = union([*limits.values(), phrase.words if places["at"] else 0])
    return Rule(
        phrase.first,
        phrase.rest,
        phrase.words | limits["needs"],
        concept,
        **limits,
        above=fields.get("above", 0.0),
        wide=fields.get("scope") == "sentence",
        absent=absent,
        conditional_on=conditional_on,
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
    content = _read_file(Path(name))
    digest = _digest(content)
    if digest not in _of_files:
        _of_files[digest] = _compile(content["name"], digest, content)
    return _of_files[digest]


# The compiled lexicons of users' files, by digest, so that an edited file is read anew.
_of_files: dict[str, Lexicon] = {}


@cache
def shipped_lexicon(name: str) -> Lexicon:
    """Return a lexicon of this package, compiled once per process."""
    content = _shipped_content(name)
    return _compile(name, _digest(content), content)


def _digest(content: Mapping[str, Any]) -> str:
    """Return a short hash of the contents of a lexicon, and of the files that all lexicons share."""
    shared = package_yaml_digest(_PACKAGE, _SHARED), load_knowledge("spellings")
    return hashlib.sha256(repr((content, shared)).encode()).hexdigest()[:8]


@cache
def _shipped_content(name: str) -> Mapping[str, Any]:
    """Return the contents of a lexicon file with the phrases of ``knowledge/concepts.yaml``."""
    names = [shipped for shipped in package_yaml_names(_PACKAGE) if shipped != _SHARED]
    if name not in names:
        raise ValueError(unknown_name_message("lexicon", str(name), names))
    content = package_yaml(_PACKAGE, name)
    concepts = dict(content["concepts"])
    for concept, entry in load_knowledge("concepts")["concepts"].items():
        phrases = [*entry.get("shared", ()), *(entry.get("names", ()) if name == _NAMED else ())]
        if phrases and (concept in concepts or name == _NAMED):
            concepts[concept] = [*concepts.get(concept, ()), *phrases]
    return {**content, "concepts": concepts}


def _compile(name: str, digest: str, content: Mapping[str, Any]) -> Lexicon:
    shared = package_yaml(_PACKAGE, _SHARED)
    sites: dict[str, str] = content.get("sites", {})
    cues = {cue: "|".join(shared["cues"][cue].split()) for cue in CUES}
    compiler = PhraseCompiler({**shared["groups"], **content.get("groups", {})}, cues["boundary"], cues["comma"])
    compiler.any_of(cues.values())
    # "Nodule without calcification" is no calcified nodule, and "pleural thickening rather than fluid" no effusion.
    compiler.end_at(f"{cues['none']}|{cues['history']}")
    concepts = tuple(content["concepts"])
    compounds = [
        compiler.phrase(phrase, meaning)
        for meaning, phrases in [*shared["compounds"].items(), *content.get("compounds", {}).items()]
        for phrase in phrases
    ]
    organs = {site: compiler.any_of(["|".join(words.split())]) for site, words in sites.items()}
    prefixes = load_knowledge("spellings")["prefixes"]
    prefixed = compiler.bit("|".join(prefixes))
    entries = [(index, entry) for index, concept in enumerate(concepts) for entry in content["concepts"][concept]]
    rules = [_compile_rule(compiler, sites, *entry) for entry in entries]
    firsts = union(rule.first for rule in rules)
    vocabulary = compiler.words
    naming_compounds = (compound.first for compound in compounds if vocabulary[compound.meaning] & firsts)
    # Longest first, because "no significant change" must be matched before "no".
    compounds.sort(key=lambda compound: -len(compound.rest))
    return Lexicon(
        name=name,
        digest=digest,
        base=content.get("extends", name),
        concepts=concepts,
        labels={label: tuple(members) for label, members in content.get("labels", {}).items()},
        vocabulary=vocabulary,
        compounds=CompoundTable(compounds, compiler, prefixes, prefixed),
        rules=PhraseTable(rules, compiler),
        firsts=firsts,
        names=union(rule.first for rule in rules if not rule.rest),
        heads=firsts | prefixed | union(naming_compounds),
        sites=union(organs.values()),
        organs=organs,
        site_names=Memo(lambda code: next((site for site, bits in organs.items() if code & bits), None)),
        exclusive=content.get("exclusive", False),
    )


def _read_file(path: Path) -> dict[str, Any]:
    """Return the contents of a user's lexicon file, with those of the lexicon that it extends.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If an entry is wrong. The message names the file, the entry and the remedy.
    """
    own = check_keys(str(path), read_user_yaml(path), _SECTIONS, required=("concepts",))
    for section in (*_MERGED, "labels"):
        if not isinstance(own.get(section, {}), Mapping):
            raise ValueError(f"{path}: {section} must be a mapping of names, got {own[section]!r}")
    try:
        base: Mapping[str, Any] = _shipped_content(own["extends"]) if "extends" in own else {}
    except ValueError as error:
        raise ValueError(f"{path}, extends: {error}") from error
    content = {**base, **own, **{section: {**base.get(section, {}), **own.get(section, {})} for section in _MERGED}}
    # The labels of the file replace those of the lexicon that it extends.
    content["labels"] = own.get("labels", base.get("labels", {}))
    content.setdefault("name", path.stem)
    shared = package_yaml(_PACKAGE, _SHARED)
    usable = {section: {**shared[section], **content[section]} for section in ("groups", "compounds")}
    _Checker(path, {**content, **usable}).check(own)
    return content


class _Checker:
    """Checks the entries of a lexicon file.

    Args:
        path: The file, for messages.
        content: Its contents, with those of the lexicon that it extends and those that all lexicons share.
    """

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        self._path, self._content = path, content
        self._groups: Mapping[str, str] = content["groups"]

    def check(self, own: Mapping[str, Any]) -> None:
        """Raise a ValueError if one of the entries of the file is wrong."""
        self._check_text("name", self._content["name"])
        if not isinstance(self._content.get("exclusive", False), bool):
            raise ValueError(f"{self._path}, exclusive: must be true or false, got {self._content['exclusive']!r}")
        for section in ("groups", "sites"):
            for name, words in own.get(section, {}).items():
                where = f"{section[:-1]} {name!r}"
                if not isinstance(words, str) or not words.strip():
                    raise self._fail(where, f"must be words separated by spaces, got {shown(words)}")
                for word in words.split():
                    self._check_choice(where, word)
        self._check_circles()
        for section, check in (("compounds", self._check_phrase), ("concepts", self._check_rule)):
            for name, phrases in own.get(section, {}).items():
                where = f"{section[:-1]} {name!r}"
                self._check_text(section[:-1], name)
                if not isinstance(phrases, list) or not phrases:
                    example = "[nodule, small <2> nodule*]"
                    raise self._fail(where, f"must be a list of phrases, as in {example}; got {shown(phrases)}")
                for number, phrase in enumerate(phrases, start=1):
                    check(f"{where}, phrase {number}", phrase)
        for label, concepts in own.get("labels", {}).items():
            self._check_text("label", label)
            self._check_names(f"label {label!r}", concepts, "concept", self._content["concepts"])
            if not concepts and label != _NO_FINDING:
                raise self._fail(f"label {label!r}", "has no concept, so it would never be positive")

    def _fail(self, where: str, problem: str) -> ValueError:
        return ValueError(f"{self._path}, {where}: {problem}")

    def _check_text(self, where: str, text: Any) -> None:
        if not isinstance(text, str) or not text.strip():
            raise self._fail(where, f"must be a text, got {shown(text)}; quote numbers, yes and no")

    def _check_names(self, where: str, names: Any, kind: str, known: Collection[str]) -> None:
        if not isinstance(names, list):
            raise self._fail(where, f"must be a list of {kind}s, got {shown(names)}")
        for name in names:
            if name not in known:
                raise self._fail(where, unknown_name_message(kind, str(name), map(str, known)))

    def _check_rule(self, where: str, rule: Any) -> None:
        rule = {"phrase": rule} if isinstance(rule, str) else rule
        if not isinstance(rule, Mapping):
            raise self._fail(
                where, f"must be a text or a mapping with the key phrase, got {shown(rule)}; quote yes and no"
            )
        check_keys(f"{self._path}, {where}", rule, _RULE, required=("phrase",))
        self._check_phrase(where, rule["phrase"])
        for field in _CHOICES:
            choices = rule.get(field, [])
            if not isinstance(choices, list):
                raise self._fail(where, f"{field} must be a list of words, got {shown(choices)}")
            for choice in choices:
                self._check_choice(f"{where}, {field}", choice)
        for field in _SITES:
            self._check_names(f"{where}, {field}", rule.get(field, []), "site", self._content["sites"])
        if not isinstance(above := rule.get("above", 1), int | float) or isinstance(above, bool) or above <= 0:
            raise self._fail(where, f"above must be a size in mm, got {shown(above)}")
        for field, value in (("says", "absent"), ("scope", "sentence")):
            if rule.get(field, value) != value:
                raise self._fail(where, f"{field} must be {value} or be left out, got {rule[field]!r}")

    def _check_phrase(self, where: str, phrase: Any) -> None:
        self._check_text(where, phrase)
        steps = phrase.split()
        for place, step in enumerate(steps):
            if not step.startswith("<"):
                self._check_choice(where, step)
            elif not _GAP.fullmatch(step):
                raise self._fail(where, f"a gap must be <n> or <n,>, as in {'no <2> nodule'!r}; got {shown(step)}")
            elif place in (0, len(steps) - 1) or steps[place - 1].startswith("<"):
                raise self._fail(where, f"the gap {step} must lie between two words of {phrase!r}")

    def _check_choice(self, where: str, choice: Any) -> None:
        """Check ``word|stem*|{group}``."""
        self._check_text(where, choice)
        for word in choice.split("|"):
            if not word.startswith("{"):
                self._check_word(where, word)
            elif not word.endswith("}") or word[1:-1] not in self._groups:
                raise self._fail(where, unknown_name_message("group", word.strip("{}"), self._groups))

    def _check_word(self, where: str, word: str) -> None:
        """Check that a word can occur among the words of a report as the engine reads them."""
        stem = word.removesuffix("*")
        # A word that starts with ~ is made by a compound.
        if stem.startswith("~"):
            self._check_names(where, [stem], "compound", self._content["compounds"])
        elif (read := tokenise(stem)) != [stem]:
            means = f"write {' '.join(read)!r}" if read else "use letters and digits"
            raise self._fail(
                where, f"{word!r} matches no word, because reports are read in lower case and without hyphens; {means}"
            )

    def _check_circles(self) -> None:
        """Raise if a group contains itself."""
        inner = {name: _GROUP.findall(words) for name, words in self._groups.items()}
        try:
            TopologicalSorter(inner).prepare()
        except CycleError as error:
            raise self._fail(f"group {error.args[1][0]!r}", "contains itself") from error
