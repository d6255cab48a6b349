"""Repair of the errors in JSON that the published CRIMSON judge makes, as far as the meaning stays certain."""

import re
from collections.abc import Collection

__all__ = ["repair_json"]

_ARRAY_AS_OBJECT = re.compile(r'\[""\s*:\s*\[')
_WRONG_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
# Findings and explanations are sentences. The limit keeps the time linear.
_LONGEST = 2000
_BARE_QUOTE = re.compile(r'(?<!\\)"')


def repair_json(text: str, keys: Collection[str], prose: Collection[str]) -> str:
    r"""Return an answer without the errors that the published code also accepts.

    These are a missing quote before a key, a word without a value between two keys, a backslash that escapes nothing,
    quotes inside a text, and an array with the beginning of an object. The positions are found by the known keys. A
    repaired answer is checked as any other; in particular, no object may contain a key twice.

    Args:
        text: An answer that is not JSON.
        keys: All keys of the answer's form.
        prose: Keys whose values are texts that may contain quotes.

    Example:
        >>> repair_json('{"ref_id": "R1", "pred", severity": "significant", "explanation": "says "large""}',
        ...     keys=["ref_id", "severity", "explanation"], prose=["explanation"])
        '{"ref_id": "R1", "severity": "significant", "explanation": "says \\"large\\""}'
    """
    key = "|".join(map(re.escape, keys))
    text = _ARRAY_AS_OBJECT.sub("[", text)
    text = re.sub(rf'([{{,]\s*)((?:{key})"\s*:)', r'\1"\2', text)
    text = re.sub(rf',\s*"\w{{1,40}}"\s*(?=,\s*"(?:{key})"\s*:|\}})', "", text)
    text = re.sub(rf'(\{{\s*)"\w{{1,40}}"\s*,\s*(?="(?:{key})"\s*:)', r"\1", text)
    text = _WRONG_ESCAPE.sub(r"\\\\", text)
    # A text ends before the next key or the end of its object.
    values = rf'("(?:{"|".join(map(re.escape, prose))})"\s*:\s*")(.{{0,{_LONGEST}}}?)("\s*(?:,\s*"(?:{key})"\s*:|\}}))'
    return re.sub(values, lambda found: f"{found[1]}{_escaped(found[2])}{found[3]}", text, flags=re.DOTALL)


def _escaped(text: str) -> str:
    return _BARE_QUOTE.sub(r"\\" + '"', text)
