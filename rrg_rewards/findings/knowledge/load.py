"""Load the YAML data of this folder and the cues of the lexicons, and compile word lists into regular expressions."""

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import Any

from rrg_rewards.utilities.yaml_files import package_yaml, package_yaml_digest, package_yaml_names

_PACKAGE = "rrg_rewards.findings.knowledge"
PROFILES = f"{_PACKAGE}.profiles"
"""Package of the profiles; see :class:`rrg_rewards.findings.comparing.profiles.Profile`."""
_MACRO = re.compile(r"(?<!\?P)<([a-z_]+)>")


def load_knowledge(name: str) -> dict[str, Any]:
    """Return the contents of ``knowledge/<name>.yaml``, read once per process. Do not modify them.

    Example:
        >>> load_knowledge("concepts")["concepts"]["tension_pneumothorax"]["is_a"]
        ['pneumothorax']
    """
    return package_yaml(_PACKAGE, name)


@cache
def cue_words(section: str, *lists: str) -> frozenset[str]:
    """Return the words of one or more lists in a section of ``lexicon/cues.yaml``.

    Example:
        >>> sorted(cue_words("denials", "always", "in_series"))
        ['no', 'non', 'nor', 'not', 'without']
    """
    words = package_yaml("rrg_rewards.findings.lexicon", "cues")[section]
    return frozenset(word for name in lists for word in words[name])


@cache
def cue_endings(section: str) -> tuple[str, ...]:
    """Return the endings of adjectives of a section of ``lexicon/cues.yaml``, for :meth:`str.endswith`.

    Example:
        >>> "mediastinal".endswith(cue_endings("organ_lists"))
        True
    """
    return tuple(cue_words(section, "adjective_endings"))


def knowledge_digest() -> str:
    """Return a short hash of the files that comparisons depend on, for signatures.

    Example:
        >>> len(knowledge_digest())
        8
    """
    names = "attributes compositions concepts measurements open_findings plain_words spellings wordings"
    own = package_yaml_digest(_PACKAGE, *names.split(), "devices", "significance")
    return sha256((own + package_yaml_digest(PROFILES, *package_yaml_names(PROFILES))).encode()).hexdigest()[:8]


def joined(patterns: Sequence[str]) -> re.Pattern[str]:
    """Compile alternatives into one expression that matches whole words and ignores case."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)


def expand(pattern: str, file: str) -> str:
    """Replace each ``<name>`` in a pattern by the macro of that name, also within macros.

    Args:
        pattern: Regular expression.
        file: Knowledge file whose ``macros`` are used, in addition to ``connectives.yaml``.

    Example:
        >>> expand("(?P<x><denials>)", "paraphrases")
        '(?P<x>no|not|none)'
    """
    macros = {**load_knowledge("connectives"), **load_knowledge(file).get("macros", {})}
    while (found := _MACRO.search(pattern)) is not None:
        pattern = pattern.replace(found[0], macros[found[1]])
    return pattern


@cache
def word_pattern(file: str, *keys: str) -> re.Pattern[str]:
    """Compile an entry of a knowledge file; case is ignored.

    Args:
        file: Knowledge file, such as ``errors``.
        keys: Keys of the entry, from the outside in. The items of a list are alternatives that match whole words. A
            string is one expression.

    Example:
        >>> word_pattern("paraphrases", "denials").findall("No mass; normal heart.")
        ['No', 'normal']
    """
    entry: Any = load_knowledge(file)
    for key in keys:
        entry = entry[key]
    if isinstance(entry, str):
        return re.compile(expand(entry, file), re.IGNORECASE)
    return joined([expand(pattern, file) for pattern in entry])
