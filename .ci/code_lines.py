"""Print the lines of code and the files of each folder of the package, without blank lines, comments and docstrings."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("rrg_rewards", "callbacks", "recipes")
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


def main() -> None:
    """Print a line for each folder, and their total."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            name = "/".join(parts[:2]) if folder == "rrg_rewards" and len(parts) > 2 else folder
            lines[name] += code_lines(path.read_text(encoding="utf-8"))
            files[name] += 1
    for name in sorted(lines):
        print(f"{name:30} {lines[name]:6} lines of code {files[name]:5} files")
    print(f"{'total':30} {lines.total():6} lines of code {files.total():5} files")


if __name__ == "__main__":
    main()
