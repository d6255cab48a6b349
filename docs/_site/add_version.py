"""Add the built site to a folder of versions: ``python docs/_site/add_version.py FOLDER VERSION``.

The folder is what a web server publishes. Each version is a folder in it, ``versions.json`` lists them for the selector
of the theme, and ``index.html`` leads to the newest.
"""

import json
import re
import shutil
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
_REDIRECT = (
    '<!DOCTYPE html><meta charset="utf-8"><title>rrg-rewards</title><meta http-equiv="refresh" content="0; url={}/">\n'
)


def add_version(site: Path, folder: Path, version: str) -> None:
    """Copy a site into the folder of versions, replacing the same version.

    Raises:
        ValueError: If the version is not of the form ``1.2`` or ``1.2.3``.
        FileNotFoundError: If the site is not built.
    """
    if not re.fullmatch(r"\d+(\.\d+){1,2}", version):
        raise ValueError(f"version must be as 1.2 or 1.2.3, got {version!r}")
    if not (site / "index.html").is_file():
        raise FileNotFoundError(f"{site} contains no site; build it first")
    target = folder / version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(site, target)
    file = folder / "versions.json"
    known = [entry["version"] for entry in json.loads(file.read_text(encoding="utf-8"))] if file.is_file() else []
    ordered = sorted({*known, version}, key=lambda text: [int(part) for part in text.split(".")], reverse=True)
    entries = [{"version": one, "title": one, "aliases": ["latest"] * (one == ordered[0])} for one in ordered]
    file.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(_REDIRECT.format(ordered[0]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: add_version.py FOLDER VERSION")
    add_version(SITE, Path(sys.argv[1]), sys.argv[2])
