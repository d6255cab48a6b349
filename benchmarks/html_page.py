"""Measure a page of 10 MB of reports: its size, and how long it takes to open, search and sort in headless Chromium.

The reports are synthetic: phantom studies, and the same studies with errors. They are scored by CRG, CRIMSON by rules
and ROUGE. Needs chromium, chromedriver and Selenium (extra ``browser``).
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from timing import machine

from rrg_rewards.cli.main import main as run_command
from rrg_rewards.data import Table, phantom_studies, write_table
from rrg_rewards.findings import inject_errors
from rrg_rewards.version import __version__

_ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(_ROOT.parent / "tests/helpers"))

from browser import open_chromium  # noqa: E402 (a helper of the tests)

_TIMED = "const start = performance.now(); {}; return performance.now() - start"
_SEARCH = "const box = document.querySelector('#search'); box.value = '{}'; box.dispatchEvent(new Event('input'))"


def make_pairs(megabytes: float) -> Table:
    """Return synthetic report pairs of a size."""
    references: list[str] = []
    predictions: list[str] = []
    size = 0
    studies = 0
    while size < megabytes * 1e6:
        for number, study in enumerate(phantom_studies(500, style="full", seed=studies)):
            reference = f"{study.findings_text}\n{study.impression_text}"
            errors = {"ABCDEF"[number % 6]: 1, "ABCD"[number % 4]: 1}
            injected = inject_errors(reference, errors, seed=number, modality="ct")
            references.append(reference)
            predictions.append(reference if injected is None else injected.candidate)
            size += len(references[-1].encode()) + len(predictions[-1].encode())
            if size >= megabytes * 1e6:
                break
        studies += 1
    return Table({"reference": references, "prediction": predictions})


def open_page(page: Path) -> dict[str, float]:
    """Return the milliseconds until the page is loaded, and of a first search, a second one and a sort."""
    with tempfile.TemporaryDirectory() as profile, open_chromium(Path(profile)) as browser:
        browser.get(page.as_uri())
        navigation = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
        took: dict[str, float] = {"open": browser.execute_script(navigation)}
        assert len(browser.find_elements("css selector", "#table tbody tr")) == 50
        took["first_search"] = browser.execute_script(_TIMED.format(_SEARCH.format("nodule")))
        took["search"] = browser.execute_script(_TIMED.format(_SEARCH.format("effusion right")))
        sort = "document.querySelectorAll('#table thead button')[2].click()"
        took["sort"] = browser.execute_script(_TIMED.format(sort))
        took["open_report"] = browser.execute_script(
            _TIMED.format("location.hash = '#7'; dispatchEvent(new Event('hashchange'))")
        )
        return took


def main() -> None:
    """Measure, print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=10.0, help="size of the reports (default: 10)")
    parser.add_argument("--repeats", type=int, default=5, help="times to open the page (default: 5)")
    parser.add_argument("--output", type=Path, default=_ROOT / "results/html_page.json", help="file of the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table, page = Path(folder) / "pairs.jsonl", Path(folder) / "page.html"
        pairs = make_pairs(arguments.megabytes)
        write_table(pairs, table)
        options = ["--metrics", "crg,crimson,rouge", "--bootstrap", "0", "--html", str(page), "--with-text", "--quiet"]
        assert run_command(["score", str(table), *options]) == 0
        size = page.stat().st_size
        runs: list[dict[str, Any]] = [open_page(page) for _ in range(arguments.repeats)]
    figures = {
        "reports": 2 * len(pairs),
        "report_megabytes": arguments.megabytes,
        "page_megabytes": round(size / 1e6, 2),
        **{f"{name}_milliseconds": round(statistics.median(run[name] for run in runs)) for name in runs[0]},
        "slowest_open_milliseconds": round(max(run["open"] for run in runs)),
    }
    for name, value in figures.items():
        print(f"{name:32}{value:>12}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    described = {**machine(), "rrg_rewards": __version__}
    arguments.output.write_text(json.dumps({"machine": described, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
