"""Print the words of each page of the documentation, and fail if a page, a table cell or a sentence is too long.

The documentation is a guide and not a logbook: what was measured belongs on the page of measurements, one row a figure.
Code blocks count as words of their page, and are left out of the check of cells and sentences.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = {"README.md": 1_100, "CHANGELOG.md": 2_500, "docs/crimson.md": 3_000, "docs/reliability.md": 1_200}
MOST_TOTAL = 65_000  # of the README and all pages
MOST_PAGES = 25
MOST_CELL = 25
MOST_SENTENCE = 35
PHRASES = ("those of", "is none", "as it is", "says so")


def prose(markdown: str) -> str:
    """Return the Markdown without code blocks, with each link, formula and code span as a word."""
    markdown = re.sub(r"^ *```.*?^ *```", "", markdown, flags=re.S | re.M)
    markdown = re.sub(r"`[^`]+`", lambda span: "code" + "." * span[0].endswith(".`"), markdown)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)


def cells(text: str) -> Iterator[str]:
    """Yield the cells of all tables."""
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences outside tables. A heading, a list item and a blank line end a sentence."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("|")]
    for block in re.split(r"\n\s*\n|\n(?= *(?:[-*>#]|\d+\.) )", "\n".join(lines)):
        joined = " ".join(block.lstrip(" -*>#").split())
        yield from re.split(r"(?<=[.!?:])[*_\")]*\s+(?=[\[*_\"(]*[A-Z0-9`]|code)", joined)


def faults(name: str, markdown: str) -> Iterator[str]:
    """Yield a message for each text of a page that is too long or is no plain English."""
    text = prose(markdown)
    if (words := len(markdown.split())) > MOST_WORDS.get(name, words):
        yield f"{name}: {words} words, at most {MOST_WORDS[name]}"
    for kind, parts, most in (("cell", cells(text), MOST_CELL), ("sentence", sentences(text), MOST_SENTENCE)):
        for part in parts:
            if (count := len(part.split())) > most:
                yield f"{name}: {kind} of {count} words, at most {most}: {part[:90]}..."
    for phrase in PHRASES:
        if re.search(rf"\b{phrase}\b", " ".join(text.split()), re.I):
            yield f"{name}: {phrase!r} is no plain English here"


def main(names: list[str]) -> int:
    """Print the words of the pages, and what is wrong with them, or with the named ones only."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CHANGELOG.md"]
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages}
    words = {name: len(text.split()) for name, text in texts.items()}
    total = sum(words.values()) - words["CHANGELOG.md"]
    for name, count in {**words, "README.md and docs": total}.items():
        print(f"{name:32}{count:8}")
    wrong = [fault for name, text in texts.items() if not names or name in names for fault in faults(name, text)]
    if not names and total > MOST_TOTAL:
        wrong.append(f"README.md and docs: {total} words, at most {MOST_TOTAL}")
    if not names and len(pages) - 2 > MOST_PAGES:
        wrong.append(f"docs: {len(pages) - 2} pages, at most {MOST_PAGES}")
    print("\n".join(wrong))
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
