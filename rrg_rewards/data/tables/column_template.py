"""Templates that make a text of several columns of a table."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PART = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<column>[^{}]+)\}|(?P<text>[^{}]+)")


@dataclass(frozen=True)
class ColumnTemplate:
    """A template of column names in braces.

    Args:
        sections: For each column, the text before it and its name.
        end: Text after the last column.

    Example:
        >>> template = ColumnTemplate.parse("Findings: {findings} Impression: {impression}")
        >>> template.columns
        ('findings', 'impression')
        >>> template.fill({"findings": "Clear lungs.", "impression": None})
        'Findings: Clear lungs.'
    """

    sections: tuple[tuple[str, str], ...]
    end: str = ""

    @classmethod
    def parse(cls, text: str) -> "ColumnTemplate | None":
        """Parse a template; ``None`` for a text without braces, which is the name of a column.

        Args:
            text: The template. ``{{`` and ``}}`` stand for braces in the text.

        Raises:
            ValueError: If a brace is not closed or not opened, or no column is named.
        """
        if not set("{}") & set(text):
            return None
        sections: list[tuple[str, str]] = []
        before = ""
        place = 0
        while place < len(text):
            part = _PART.match(text, place)
            if part is None:
                raise ValueError(f"has a brace without its counterpart, at {text[place : place + 20]!r}")
            if part["column"] is None:
                before += part["text"] or part["brace"][0]
            else:
                sections.append((before, part["column"]))
                before = ""
            place = part.end()
        if not sections:
            raise ValueError("names no column in braces")
        return cls(tuple(sections), before)

    @property
    def columns(self) -> tuple[str, ...]:
        """The named columns, in order."""
        return tuple(dict.fromkeys(column for _, column in self.sections))

    def __str__(self) -> str:
        def escaped(text: str) -> str:
            return text.replace("{", "{{").replace("}", "}}")

        return "".join(f"{escaped(before)}{{{column}}}" for before, column in self.sections) + escaped(self.end)

    def with_columns(self, names: Mapping[str, str]) -> "ColumnTemplate":
        """Return the template with other names of columns, by the present ones."""
        return ColumnTemplate(tuple((before, names[column]) for before, column in self.sections), self.end)

    def fill(self, texts: Mapping[str, str | None], missing: str | None = None) -> str | None:
        """Return the text of a row.

        Args:
            texts: Text by column; ``None`` for a missing one.
            missing: Text in place of a missing section. Default: a section that is missing or blank is left out
                together with the text before it, and spaces at the ends are removed.

        Returns:
            The text; ``None`` if all sections are left out.
        """
        if missing is not None:
            filled = [before + (missing if (own := texts[column]) is None else own) for before, column in self.sections]
            return "".join(filled) + self.end
        kept = [before + own for before, column in self.sections if (own := texts[column]) is not None and own.strip()]
        if len(kept) == len(self.sections):
            return "".join(kept) + self.end
        return ("".join(kept) + self.end).strip() if kept else None
