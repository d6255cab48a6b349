"""Print the lines of code by folder and the words of the documentation, beside those of the last landing.

Lines of code are those without blank lines, comments and docstrings. `.ci/last_landing` names the commit to compare
with. The exit code is 1 if a commit since then adds more than MOST_ADDED lines to the package, and its message does not
name who needs them (`Needed by: ...`) and which figure they must reach (`Must reach: ...`).
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ("rrg_rewards", "callbacks", "recipes")
FOLDERS = (*PACKAGE, "tests", "docs", "README.md", "CHANGELOG.md")
MOST_ADDED = 200
TRAILERS = ("Needed by", "Must reach")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(source: str) -> int:
    """Return the number of lines of code of a module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - docstrings)


def sizes(texts: Iterable[tuple[str, str]]) -> tuple[Counter[str], Counter[str]]:
    """Return lines of code and files by folder, and words of documentation, of files with their paths."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path, text in texts:
        parts = path.split("/")
        if path.endswith(".py") and parts[0] in (*PACKAGE, "tests"):
            folder = "/".join(parts[:2]) if parts[0] == "rrg_rewards" and len(parts) > 2 else parts[0]
            lines[folder] += code_lines(text)
            files[folder] += 1
        elif path.endswith(".md") and (len(parts) == 1 or (parts[0] == "docs" and len(parts) == 2)):
            folder = f"{parts[0]}, words"
            lines[folder] += len(text.split())
            files[folder] += 1
    for counts in (lines, files):
        counts["package"] = sum(count for name, count in counts.items() if name.split("/")[0] in PACKAGE)
    return lines, files


def present() -> Iterator[tuple[str, str]]:
    """Yield the files of the checkout."""
    for folder in FOLDERS:
        for path in [ROOT / folder] if "." in folder else sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".py", ".md"):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def git(*arguments: str) -> bytes:
    """Return the output of git."""
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout


def earlier(commit: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a commit."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, *FOLDERS))) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None and member.name.endswith((".py", ".md")):
                yield member.name, content.read().decode()


def added_lines(commit: str) -> int:
    """Return how many lines a commit adds to the package, less those it removes."""
    rows = git("show", "--numstat", "--format=", commit, "--", *PACKAGE).decode().splitlines()
    counts = [row.split("\t") for row in rows if row.endswith(".py")]
    return sum(int(added) - int(removed) for added, removed, _ in counts)


def without_reason(last: str) -> list[str]:
    """Return the commits since the last landing that add much without a user and a figure."""
    wrong = []
    for commit in git("rev-list", "--no-merges", f"{last}..HEAD").decode().split():
        message = git("show", "-s", "--format=%h %B", commit).decode()
        if added_lines(commit) > MOST_ADDED and not all(re.search(f"^{name}: .", message, re.M) for name in TRAILERS):
            wrong.append(message.splitlines()[0])
    return wrong


def main() -> int:
    """Print a line for each folder, and check the commits since the last landing."""
    lines, files = sizes(present())
    last = (ROOT / ".ci" / "last_landing").read_text().strip()
    try:
        git("cat-file", "-e", f"{last}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        print(f"{last}, the commit of the last landing, is not here: nothing is compared")
        lines_then, files_then, wrong = lines, files, []
    else:
        lines_then, files_then = sizes(earlier(last))
        wrong = without_reason(last)
    print(f"{'':32}{'lines':>8}{'before':>8}{'files':>8}{'before':>8}")
    for name in sorted(lines | lines_then, key=lambda name: (name == "package", name)):
        print(f"{name:32}{lines[name]:8}{lines_then[name]:8}{files[name]:8}{files_then[name]:8}")
    for commit in wrong:
        print(f"adds more than {MOST_ADDED} lines, and names no {' and no '.join(TRAILERS)}: {commit}")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
