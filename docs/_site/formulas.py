"""Formulas of Markdown as MathML, which browsers show without a script."""

import re

from latex2mathml.converter import convert

# Code is not read: it contains dollar signs of shells.
_FORMULA = re.compile(
    r"(?P<code>^(?P<indent> *)(?P<fence>```+)[^`\n]*\n.*?^(?P=indent)(?P=fence)$|(?P<ticks>`+).+?(?P=ticks)|\\\$)"
    r"|\$\$(?P<display>.+?)\$\$"
    r"|(?<![\w$])\$(?P<inline>(?!\s)(?:[^$`\\]|\\[^$])+(?<!\s))\$(?![\w$])",
    re.MULTILINE | re.DOTALL,
)
_MARKUP = re.compile(r"[\\`*_\[\]|$]")


# Commands that the converter does not know.
_OPERATORS = re.compile(r"\\arg(?![a-zA-Z])")


def with_mathml(markdown: str) -> str:
    """Convert formulas in ``$`` and ``$$`` to MathML.

    Raises:
        ValueError: If a formula contains a command that the converter does not know.
    """
    return _FORMULA.sub(_converted, markdown)


def _converted(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return found[0]
    is_inline = found["inline"] is not None
    formula = _OPERATORS.sub(r"\\operatorname{arg}", " ".join(found["inline" if is_inline else "display"].split()))
    if "&=" in formula and not formula.startswith(r"\begin{"):
        # As Sphinx does for lines that are aligned.
        formula = rf"\begin{{split}}{formula}\end{{split}}"
    html = convert(formula, display="inline" if is_inline else "block")
    if unknown := re.search(r"<mi>(\\[^<]*|&)</mi>", html):
        raise ValueError(f"{unknown[1]} cannot be shown in the formula {formula}")
    # Characters of the formula that Markdown would read as markup.
    html = re.sub(r">([^<]+)<", lambda text: f">{_MARKUP.sub(lambda one: f'&#{ord(one[0])};', text[1])}<", html)
    # Markdown would take an element at the beginning of a line for a block.
    return f"<span>{html}</span>" if is_inline else html
