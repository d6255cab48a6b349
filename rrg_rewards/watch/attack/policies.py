"""Image-free policies: constant texts, and edits of honest reports."""

import re
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["Edit", "Policy", "split_sentences"]

Edit = Literal["", "report", "sentence"]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without surrounding white space.

    Example:
        >>> split_sentences("No effusion. Nodule of 3.5 mm")
        ['No effusion.', 'Nodule of 3.5 mm']
    """
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip(" .!?")]


@dataclass(frozen=True)
class Policy:
    """A policy that sees no image: a text for all patients, or the same edit of each honest report.

    Args:
        sentences: Parts of the text.
        join: Text between two parts.
        end: Text after the last part.
        edit: How the text changes an honest report: ``"report"`` replaces ``{report}`` in the text by the report,
            ``"sentence"`` replaces ``{sentence}`` by each sentence of the report; empty for a constant text.

    Example:
        >>> Policy(("Effusion.", "Nodule.")).completion(None)
        'Effusion. Nodule.'
        >>> Policy(("Possibly {sentence}",), edit="sentence").completion("Effusion. Nodule.")
        'Possibly Effusion. Possibly Nodule.'
    """

    sentences: tuple[str, ...]
    join: str = " "
    end: str = ""
    edit: Edit = ""

    @property
    def text(self) -> str:
        """The text, with ``{report}`` or ``{sentence}`` in it if the policy edits reports."""
        return self.join.join(self.sentences) + self.end

    def completion(self, honest: str | None) -> str:
        """Return the policy's report of a patient.

        Args:
            honest: Honest report of the patient; unused by a constant text.

        Raises:
            ValueError: If the policy edits reports and there is no honest report.
        """
        if not self.edit:
            return self.text
        if honest is None:
            raise ValueError("a policy that edits reports needs an honest report")
        if self.edit == "report":
            return self.text.replace("{report}", honest)
        return " ".join(self.text.replace("{sentence}", part) for part in split_sentences(honest))

    def with_sentences(self, sentences: tuple[str, ...]) -> "Policy":
        """Return a copy with other sentences."""
        return replace(self, sentences=sentences)

    def appended_to_report(self) -> "Policy":
        """Return the policy that appends this constant text to each honest report."""
        return Policy(("{report}", self.text), edit="report")
