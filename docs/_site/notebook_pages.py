"""Pages of notebooks: their text, code and printed results as Markdown."""

import json
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown, with a link to the file after its title."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *text = "".join(cells[0]["source"]).split("\n")
    link = f"[Download this notebook]({path.name})"
    parts = ["\n".join([title, "", link, *text])]
    for cell in cells[1:]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        # A long print comes in several outputs.
        if results := "".join(map(output_text, cell.get("outputs", ()))).rstrip():
            parts.append(f"```text\n{results}\n```")
    return "\n\n".join(parts) + "\n"


def output_text(output: dict[str, Any]) -> str:
    """Return the text of an output; warnings and progress on standard error are left out."""
    if output["output_type"] == "stream":
        return "".join(output["text"]) if output["name"] == "stdout" else ""
    return "".join(output.get("data", {}).get("text/plain", ()))
