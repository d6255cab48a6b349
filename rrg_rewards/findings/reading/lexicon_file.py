"""Read and check lexicon files of users. Their format is described in ``docs/labelers.md``."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from rrg_rewards.findings.reading.tokens import tokenise
from rrg_rewards.utilities.names import unknown_name_message
from rrg_rewards.utilities.user_yaml import check_keys, read_user_yaml

__all__ = ["read_lexicon_file"]

_SECTIONS = ("name", "extends", "exclusive", "groups", "sites", "compounds", "concepts", "labels")
_MERGED = ("groups", "sites", "compounds", "concepts")
_CHOICES = ("with", "without", "not_next", "not_previous", "not_within")
_SITES = ("at", "not_at")
_RULE = ("phrase", *_CHOICES, *_SITES, "says", "scope")
# The only label that follows from the others.
_NO_FINDING = "No Finding"
_GAP = re.compile(r"<\d{1,2},?>")


def read_lexicon_file(
    path: Path, get_base: Callable[[str], Mapping[str, Any]], shared: Mapping[str, Any]
) -> dict[str, Any]:
    """Read a lexicon from a YAML file of a user.

    Args:
        path: The file.
        get_base: Returns the contents of the lexicon that the file extends.
        shared: Groups and compounds that all lexicons have.

    Returns:
        The contents of the file, with those of the lexicon that it extends.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If an entry is wrong. The message names the file, the entry and the remedy.
    """
    own = check_keys(str(path), read_user_yaml(path), _SECTIONS, required=("concepts",))
    for section in (*_MERGED, "labels"):
        if not isinstance(own.get(section, {}), Mapping):
            raise ValueError(f"{path}: {section} must be a mapping of names, got {own[section]!r}")
    base: Mapping[str, Any] = {}
    if "extends" in own:
        try:
            base = get_base(own["extends"])
        except ValueError as error:
            raise ValueError(f"{path}, extends: {error}") from error
    content = {**base, **own, **{section: {**base.get(section, {}), **own.get(section, {})} for section in _MERGED}}
    # The labels of the file replace those of the lexicon that it extends.
    content["labels"] = own.get("labels", base.get("labels", {}))
    content.setdefault("name", path.stem)
    known = {section: {**shared[section], **content[section]} for section in ("groups", "compounds")}
    _Checker(path, {**content, **known}).check(own)
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
        _check_text(f"{self._path}, name", self._content["name"])
        if not isinstance(self._content.get("exclusive", False), bool):
            raise ValueError(f"{self._path}, exclusive: must be true or false, got {self._content['exclusive']!r}")
        for name, words in own.get("groups", {}).items():
            self._check_words(f"group {name!r}", words)
        self._check_circles(own.get("groups", {}))
        for name, words in own.get("sites", {}).items():
            self._check_words(f"site {name!r}", words)
        for name, phrases in own.get("compounds", {}).items():
            for number, phrase in self._listed(f"compound {name!r}", phrases):
                self._check_phrase(f"compound {name!r}, phrase {number}", phrase)
        for name, phrases in own["concepts"].items():
            _check_text(f"{self._path}, concept", name)
            for number, rule in self._listed(f"concept {name!r}", phrases):
                self._check_rule(f"concept {name!r}, phrase {number}", rule)
        for label, concepts in own.get("labels", {}).items():
            _check_text(f"{self._path}, label", label)
            self._check_names(f"label {label!r}", concepts, "concept", self._content["concepts"])
            if not concepts and label != _NO_FINDING:
                raise self._fail(f"label {label!r}", "has no concept, so it would never be positive")

    def _fail(self, where: str, problem: str) -> ValueError:
        return ValueError(f"{self._path}, {where}: {problem}")

    def _listed(self, where: str, phrases: Any) -> "enumerate[Any]":
        if not isinstance(phrases, list) or not phrases:
            raise self._fail(where, f"must be a list of phrases, as in [nodule, small <2> nodule*]; got {phrases!r}")
        return enumerate(phrases, start=1)

    def _check_names(self, where: str, names: Any, kind: str, known: Collection[str]) -> None:
        if not isinstance(names, list):
            raise self._fail(where, f"must be a list of {kind}s, got {names!r}")
        for name in names:
            if name not in known:
                raise self._fail(where, unknown_name_message(kind, str(name), map(str, known)))

    def _check_rule(self, where: str, rule: Any) -> None:
        if isinstance(rule, str):
            self._check_phrase(where, rule)
            return
        if not isinstance(rule, Mapping):
            raise self._fail(where, f"must be a text or a mapping with the key phrase, got {rule!r}; quote yes and no")
        check_keys(f"{self._path}, {where}", rule, _RULE, required=("phrase",))
        self._check_phrase(where, rule["phrase"])
        for field in _CHOICES:
            choices = rule.get(field, [])
            if not isinstance(choices, list):
                raise self._fail(where, f"{field} must be a list of words, got {choices!r}")
            for choice in choices:
                self._check_choice(f"{where}, {field}", choice)
        for field in _SITES:
            self._check_names(f"{where}, {field}", rule.get(field, []), "site", self._content["sites"])
        for field, value in (("says", "absent"), ("scope", "sentence")):
            if rule.get(field, value) != value:
                raise self._fail(where, f"{field} must be {value} or be left out, got {rule[field]!r}")

    def _check_phrase(self, where: str, phrase: Any) -> None:
        if not isinstance(phrase, str) or not phrase.strip():
            raise self._fail(where, f"must be a text, got {phrase!r}; quote numbers, yes and no")
        steps = phrase.split()
        for place, step in enumerate(steps):
            if not step.startswith("<"):
                self._check_choice(where, step)
            elif not _GAP.fullmatch(step):
                raise self._fail(where, f"a gap must be <n> or <n,>, as in {'no <2> nodule'!r}; got {step!r}")
            elif place in (0, len(steps) - 1) or steps[place - 1].startswith("<"):
                raise self._fail(where, f"the gap {step} must lie between two words of {phrase!r}")

    def _check_words(self, where: str, words: Any) -> None:
        if not isinstance(words, str) or not words.strip():
            raise self._fail(where, f"must be words separated by spaces, got {words!r}")
        for word in words.split():
            self._check_choice(where, word)

    def _check_choice(self, where: str, choice: Any) -> None:
        """Check ``word|stem*|{group}``."""
        if not isinstance(choice, str):
            raise self._fail(where, f"must be a text, got {choice!r}; quote numbers, yes and no")
        for word in choice.split("|"):
            if word.startswith("{"):
                if not word.endswith("}") or word[1:-1] not in self._groups:
                    raise self._fail(where, unknown_name_message("group", word.strip("{}"), self._groups))
            else:
                self._check_word(where, word)

    def _check_word(self, where: str, word: str) -> None:
        """Check that a word can occur among the words of a report as the engine reads them."""
        stem = word.removesuffix("*")
        # A word that starts with ~ is made by a compound.
        if stem.startswith("~"):
            if stem not in self._content["compounds"]:
                raise self._fail(where, unknown_name_message("compound", stem, self._content["compounds"]))
            return
        read = tokenise(stem)
        if read != [stem]:
            means = f"write {' '.join(read)!r}" if read else "use letters and digits"
            raise self._fail(
                where, f"{word!r} matches no word, because reports are read in lower case and without hyphens; {means}"
            )

    def _check_circles(self, groups: Mapping[str, str]) -> None:
        """Raise if a group contains itself."""
        for name in groups:
            open_groups = [name]
            seen: set[str] = set()
            while open_groups:
                parts = "|".join(self._groups[open_groups.pop()].split()).split("|")
                inner = {part[1:-1] for part in parts if part.startswith("{")} - seen
                if name in inner:
                    raise self._fail(f"group {name!r}", "contains itself")
                seen |= inner
                open_groups += inner


def _check_text(where: str, text: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{where}: must be a text, got {text!r}; quote numbers, yes and no")
