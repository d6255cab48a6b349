"""Texts that files and requests can represent."""

__all__ = ["REPLACEMENT", "encodable_text"]

REPLACEMENT = "\ufffd"
"""Unicode's character for one that cannot be represented."""


def encodable_text(text: str) -> str:
    r"""Replace unpaired surrogates, which UTF-8 cannot represent, by U+FFFD. Two halves of a pair become a character.

    Example:
        >>> encodable_text("a\ud800b"), encodable_text("\ud83e\udec1") == "\U0001fac1"
        ('a\ufffdb', True)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
