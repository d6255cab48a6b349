"""Find the words of a sentence that state attributes of findings."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import dropwhile, takewhile
from typing import Any, NamedTuple

from rrg_rewards.findings.knowledge.load import cue_words, load_knowledge
from rrg_rewards.findings.reading.finding import Attributes
from rrg_rewards.findings.reading.measurements import size_at, value_at
from rrg_rewards.findings.reading.phrases import PhraseBook

Values = tuple[tuple[str, Any], ...]
"""Attributes and their values."""
PLACING = frozenset({"in", "at", "on", "within", "throughout"})
"""Words between a measure or a verb and the place that it is in."""

VALUE_KINDS = frozenset({"share", "attenuation", "volume", "angle", "ratio", "count", "grade", "type", "size", "below"})
"""Kinds of ``Attributes.values``."""

_KINDS = (*Attributes._fields, "segment", "implied", "grade", "type")
_DIGITS = "0123456789.<>"
# Stands for the values of a word that can begin a measure or a level; they depend on the words after it.
_NUMBER: Values = (("number", None),)
_RIBS = {word: n for n, words in enumerate(load_knowledge("attributes")["ordinals"], 1) for word in words.split()}
_VERTEBRA = re.compile(r"[tlc](\d{1,2})")
# Number of words before a measure in which "previously" or "distance" says that it is no size.
_NO_SIZE_REACH = 3
# Maximum distance in words from a denial to the word that it denies: "without significant displacement".
_DENIAL_REACH = 2
# The same to a place: "the tube is not in the right main bronchus".
_PLACE_REACH = 5
PLACED = frozenset({"laterality", "location", "segment", "implied"})
"""Kinds of modifiers that state a place."""
# Attributes that a denial does not remove: "not changed" states a change, "cannot exclude" states a doubt.
_UNDENIED = frozenset({"change", "certainty", "size_mm", "location", "below"})
# Maximum distance in words from a level to the word that makes it one: "upper and left lower lobe".
_LEVEL_REACH = 6


class Modifier(NamedTuple):
    """The attributes that tokens ``start`` to ``end`` of a sentence state."""

    start: int
    end: int
    values: Values


def _phrases(config: Mapping[str, Any]) -> Iterable[tuple[str, Values]]:
    for entry in config["joint"]:
        values = tuple((kind, value) for kind, value in entry.items() if kind != "phrase")
        yield from ((text, values) for text in entry["phrase"])
    yield from ((text, ()) for text in config["ignored"])
    for kind in _KINDS:
        for value, texts in config.get(kind, {}).items():
            yield from ((text, ((kind, value),)) for text in texts)


class ModifierReader:
    """Finds the words of a sentence that state attributes.

    Args:
        config: Contents of ``knowledge/attributes.yaml``.

    Example:
        >>> reader = modifier_reader()
        >>> [found.values for found in reader.modifiers("small left effusion of 5 mm".split())]
        [(('severity', 'mild'),), (('laterality', 'left'),), (('size_mm', 5.0),)]
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._distance, self._toward = frozenset(config["distance"]), frozenset(config["toward"])
        self._not_sizes = frozenset(config["not_sizes"])
        self._former, self._now = frozenset(config["former"]), frozenset(config["now"])
        self._earlier = frozenset(config["earlier"])
        self._denials = cue_words("denials", "always", "in_series")
        self._levels, self._leveled = config["levels"], frozenset(config["leveled"])
        self._level_fillers = frozenset(config["level_fillers"])
        # Of equally long phrases the first one counts; joint phrases are first, then ignored ones.
        self._phrases = PhraseBook(_phrases(config), others=(self._has_number, _NUMBER))

    def modifiers(self, tokens: Sequence[str]) -> list[Modifier]:
        """Return the modifiers in a sentence that are not denied, in order."""
        modifiers: list[Modifier] = []
        end = 0
        for i, (phrase_end, values) in self._phrases.matches(tokens).items():
            if i < end:
                continue
            token = tokens[i]
            modifier: Modifier | None = Modifier(i, phrase_end, values)
            if token[0] in _DIGITS:
                modifier = self._measure(tokens, i) or _level(tokens, i)
            elif values is _NUMBER:
                modifier = self._shared_level(tokens, i) if token in self._levels else _level(tokens, i)
            if modifier is None:
                continue
            if modifier.values:
                modifiers.append(modifier)
            end = modifier.end
        return self.undenied(tokens, modifiers)

    def undenied(self, tokens: Sequence[str], modifiers: list[Modifier]) -> list[Modifier]:
        """Return the modifiers that no word before them denies."""
        if self._denials.isdisjoint(tokens):
            return modifiers
        return [one for one in modifiers if not (self._is_denied(tokens, one) or self._is_elsewhere(tokens, one))]

    def _has_number(self, word: str) -> bool:
        """Whether a word can begin a measure or a level without being one of the phrases."""
        return word[0] in _DIGITS or word[-1] in _DIGITS or word in _RIBS or word in self._levels

    def _is_denied(self, tokens: Sequence[str], modifier: Modifier) -> bool:
        before = tokens[max(0, modifier.start - _DENIAL_REACH) : modifier.start]
        if all(kind in _UNDENIED for kind, _ in modifier.values):
            return False
        # "non" denies the next word only: in "non specific 4 mm nodule" the size is stated.
        return any(word in self._denials and (word != "non" or i == len(before) - 1) for i, word in enumerate(before))

    def _is_elsewhere(self, tokens: Sequence[str], modifier: Modifier) -> bool:
        """Whether a modifier is a place that is denied: "the tube is not in the right main bronchus"."""
        if modifier.values[0][0] not in (*PLACED, "place_words"):
            return False
        before = tokens[max(0, modifier.start - _PLACE_REACH) : modifier.start]
        following = list(dropwhile(lambda word: word != "not", before))[1:]
        is_placed = not cue_words("references", "placing").isdisjoint(following[:1])
        return is_placed and cue_words("connectives", "enders").isdisjoint(following)

    def _measure(self, tokens: Sequence[str], start: int) -> Modifier | None:
        """Return a size such as "2.5 x 3 cm", or the position of a tube from its distance to the carina."""
        size = size_at(tokens, start)
        if size is None:
            value = value_at(tokens, start)
            return value and Modifier(start, value.end, ((value.kind, value.number),))
        end = size.end
        former = (("former_mm", size.largest),)
        if tokens[start - 1 : start] == ["from"]:
            # "increased from 4 to 6 mm": the measure after "to" is the size.
            to = next((i for i in range(start, end) if tokens[i] == "to"), end)
            return Modifier(start, to, former if to == end else ())
        if self._is_former(tokens, start, end):
            is_size = self._not_sizes.isdisjoint(tokens[max(0, start - _NO_SIZE_REACH) : start])
            return Modifier(start, end, former if is_size else ())
        after = tokens[end : end + 2]
        if "carina" in tokens[end : end + 6] and after and after[0] in ("above", "from"):
            lowest, highest = load_knowledge("devices")["above_carina"]
            position = "satisfactory" if lowest <= size.largest <= highest else "malpositioned"
            return Modifier(start, end, (("device_position", position), ("size_mm", size.largest)))
        if after and (after[0] in self._distance or (after[0] in self._toward and after[1:] in (["to"], ["the"]))):
            return Modifier(start, end, ())
        second = () if size.second is None else (("short_axis_mm", size.second),)
        others = [("size", other) for other in size.others]
        below = [("below", size.largest)] if _is_below(tokens, start) else ()
        return Modifier(start, end, (("size_mm", size.largest), *second, *others, *below))

    def _is_former(self, tokens: Sequence[str], start: int, end: int) -> bool:
        """Whether a measure is a size in an earlier examination, or no size of a finding."""
        before = list(takewhile(lambda word: word != ",", reversed(tokens[max(0, start - _NO_SIZE_REACH) : start])))
        if not self._not_sizes.isdisjoint(before) or not self._earlier.isdisjoint(before):
            return True
        after = tokens[end : end + _NO_SIZE_REACH]
        if after[:1] and (after[0] in self._earlier or after[0] in PLACING) and not self._earlier.isdisjoint(after):
            return True
        if self._former.isdisjoint(before) or self._now.isdisjoint(tokens[end:]):
            return False
        # "was 14 mm in the current examination" is the size; "was 4 mm, now 5 mm" is not.
        return "," in after or self._now.isdisjoint(after)

    def _shared_level(self, tokens: Sequence[str], i: int) -> Modifier | None:
        """Return the level of a word such as "upper" in "right upper and left lower lobe", or ``None``."""
        level = self._levels[tokens[i]]
        fillers = (self._level_fillers | self._levels.keys()) - self._leveled
        last = next((word for word in tokens[i + 1 : i + 1 + _LEVEL_REACH] if word not in fillers), "")
        return Modifier(i, i + 1, (("location", level),)) if last in self._leveled else None


def _is_below(tokens: Sequence[str], start: int) -> bool:
    """Whether a size is less than the measure at a token: "under 5 mm", "less than about 1 cm", not "no less than"."""
    before = [word for word in tokens[max(0, start - 4) : start] if word not in cue_words("comparisons", "about")]
    is_less = before[-1:] == ["than"] and not cue_words("comparisons", "less").isdisjoint(before[-2:-1])
    is_denied = not cue_words("denials", "always").isdisjoint(before[-3:-2])
    return tokens[start][0] == "<" or before[-1:] in (["<"], ["under"], ["below"]) or (is_less and not is_denied)


def _level(tokens: Sequence[str], i: int) -> Modifier | None:
    """Return the location of a token that is the number of a rib or vertebra, or ``None``."""
    token = tokens[i]
    if token in _RIBS and any(word in ("rib", "ribs") for word in tokens[i + 1 : i + 7]):
        return Modifier(i, i + 1, (("location", f"rib_{_RIBS[token]}"),))
    if _VERTEBRA.fullmatch(token):
        return Modifier(i, i + 1, (("location", token),))
    return None


@cache
def modifier_reader() -> ModifierReader:
    """Return the reader of the attributes in ``knowledge/attributes.yaml``, one per process."""
    return ModifierReader(load_knowledge("attributes"))
