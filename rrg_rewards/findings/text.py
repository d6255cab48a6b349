"""Report text to sentences and tokens, each with its place in the report."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import compress

__all__ = ["UNIT_SEPARATOR", "locate", "normalise", "pieces", "sentences", "tokenise"]

# The cheapest cut that never divides a sentence in two. Reports repeat whole sentences, so what lies between two of
# these, a unit, is what the engine remembers; `pieces` finds the sentences in one.
UNIT_SEPARATOR = ". "
# A full stop between digits is a decimal point; quotes and bullets separate the lines of an impression.
_STOP = re.compile(r"\.(?!\d)")
_BOUNDARY = re.compile(r'[\n\r;!"“”•]+|\.(?!\d)')
# Longer runs without a boundary are cut, so that no step of the analysis sees an unbounded sentence.
_MAX_PIECE = 2000
_PADDED = ",()?:/"
_KEPT = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.%<>" + _PADDED)


class _Table(dict[int, int]):
    """One character to one character: offsets in the normalised text are offsets in the report."""

    def __missing__(self, code: int) -> int:
        # Signs of other scripts part words as ours do; their letters and marks, and what does not show, do not.
        category = unicodedata.category(chr(code))
        self[code] = found = code if category[0] in "LMN" or category == "Cf" else 32
        return found


_TABLE = _Table({code: ord(chr(code).lower()) if chr(code) in _KEPT else 32 for code in range(128)})
# Stands between units that are read together; as any control character it means nothing in a report.
_UNIT_MARK = "\x1e"
_TABLE[ord(_UNIT_MARK)] = ord(_UNIT_MARK)
_TABLE.update(dict.fromkeys(map(ord, '\n\r;!"“”•'), 10))
# The multiplication sign between measures.
_TABLE[0xD7] = ord("x")
# A byte order mark may stand before the first word.
_TABLE[0xFEFF] = 32


def pieces(unit: str) -> list[tuple[int, str]]:
    """Sentences of a unit with their offsets in it.

    Example:
        >>> pieces('Size 2.5 mm." Effusion')
        [(0, 'Size 2.5 mm'), (13, ' Effusion')]
    """
    if len(unit) <= _MAX_PIECE and not _BOUNDARY.search(unit):
        return [(0, unit)] if unit else []
    found, start = [], 0
    for boundary in _BOUNDARY.finditer(unit):
        found += _bounded(start, unit[start : boundary.start()])
        start = boundary.end()
    return found + _bounded(start, unit[start:])


def _bounded(offset: int, piece: str) -> list[tuple[int, str]]:
    found = []
    while len(piece) > _MAX_PIECE:
        cut = piece.rfind(" ", 1, _MAX_PIECE)
        cut = cut if cut > 0 else _MAX_PIECE
        found.append((offset, piece[:cut]))
        offset, piece = offset + cut, piece[cut:]
    if piece:
        found.append((offset, piece))
    return found


def normalise(piece: str) -> str:
    """Lower-case ASCII letters and blank what never matters, keeping the length.

    Example:
        >>> normalise("Ground-glass [RUL]")
        'ground glass  rul '
    """
    return piece.translate(_TABLE)


def tokenise(piece: str) -> list[str]:
    """Words, numbers and the punctuation that bounds scopes, in lower case.

    Example:
        >>> tokenise("Nodule (metastasis?), 2.5 mm")
        ['nodule', '(', 'metastasis', '?', ')', ',', '2.5', 'mm']
    """
    return _pad(piece.translate(_TABLE)).split()


def sentences(units: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield for each of many units the tokens of its sentences.

    The result is that of :func:`pieces` and :func:`tokenise`; the string operations run once over all units.

    Example:
        >>> list(sentences(["No effusion; hernia", "Clear."]))
        [[['no', 'effusion'], ['hernia']], [['clear']]]
    """
    # One character that is not ASCII would slow all of them down, and an endless unit needs cutting.
    plain = [unit.isascii() and len(unit) <= _MAX_PIECE and _UNIT_MARK not in unit for unit in units]
    text = _UNIT_MARK.join(compress(units, plain)).translate(_TABLE)
    texts = iter(_pad(_STOP.sub("\n", text)).split(_UNIT_MARK))
    for unit, is_plain in zip(units, plain, strict=True):
        if is_plain:
            yield [tokens for line in next(texts).split("\n") if (tokens := line.split())]
        else:
            yield [tokenise(piece) for _, piece in pieces(unit)]


def _pad(text: str) -> str:
    for mark in _PADDED:
        if mark in text:
            text = text.replace(mark, f" {mark} ")
    return text


def locate(piece: str, tokens: list[str]) -> list[tuple[int, int]]:
    """Offsets in ``piece`` of the tokens that :func:`tokenise` made of it.

    Example:
        >>> locate("No effusion", ["no", "effusion"])
        [(0, 2), (3, 11)]
    """
    text, spans, position = normalise(piece), [], 0
    for token in tokens:
        position = text.index(token, position)
        spans.append((position, position + len(token)))
        position += len(token)
    return spans
