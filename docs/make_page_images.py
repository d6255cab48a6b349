"""Make the images of the guide: pages of synthetic reports in headless Chromium, light and dark, and the demo's plot.

``--demo FOLDER`` draws the changes of a run of ``rrg-rewards demo --output FOLDER`` as ``demo.svg``, and nothing else.
"""

import argparse
import base64
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrg_rewards.cli.demo import MEASURES
from rrg_rewards.cli.main import main
from rrg_rewards.data import Table, phantom_studies, write_table
from rrg_rewards.findings import inject_errors
from rrg_rewards.utilities.charts import Interval, Intervals, svg_file

_ROOT = Path(__file__).parents[1]
_LETTERS = "ABCDEF"
sys.path.insert(0, str(_ROOT / "tests/helpers"))

from browser import open_chromium  # noqa: E402 (a helper of the tests)


def phantom_pairs(rows: int, errors: float = 1.0, seed: int = 0) -> Table:
    """Return synthetic pairs with a rating that falls with the number of errors.

    Args:
        rows: Number of studies.
        errors: Share of the studies that have errors.
        seed: Seed of the studies and of the errors.
    """
    columns: dict[str, list[object]] = {name: [] for name in ("study", "reference", "prediction", "rating")}
    for number, study in enumerate(phantom_studies(rows, style="compact", seed=seed)):
        some = number % 10 < 10 * errors
        counts = {letter: some * (number + 3 * place) % 5 // 3 for place, letter in enumerate(_LETTERS)}
        injected = inject_errors(study.report, counts, seed=seed + number, modality="ct")
        columns["study"].append(study.study_id)
        columns["reference"].append(study.report)
        columns["prediction"].append(study.report if injected is None else injected.candidate)
        columns["rating"].append(5 - sum(() if injected is None else injected.counts))
    return Table(columns)


def _run(*command: str) -> None:
    if main([*command, "--quiet", "--overwrite"]):
        raise SystemExit(f"failed: {' '.join(command)}")


def _save(browser: Any, address: str, path: Path, width: int, height: int) -> None:
    browser.get("about:blank")
    browser.get(address)
    area = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    image = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": area})
    path.write_bytes(base64.b64decode(image["data"]))


def make_images(folder: Path, shots: Sequence[tuple[str, str, str, int, bool, int]]) -> None:
    """Write the images.

    Args:
        folder: Folder for the images.
        shots: Name of the image, address of the page, part of the page, width, whether colours are dark, and height.
    """
    for name, page, part, width, dark, height in shots:
        with tempfile.TemporaryDirectory() as profile, open_chromium(Path(profile), width, dark) as browser:
            _save(browser, page + part, folder / f"{name}.png", width, height)


def draw_demo(run: Path, path: Path) -> None:
    """Draw the changes of the measures of a demo with their intervals, and of ROUGE-L, which is not rewarded."""
    change = json.loads((run / "grpo/evaluation.json").read_text(encoding="utf-8"))["change"]
    values = {name: change[metric][statistic] for name, (metric, statistic) in MEASURES.items() if name != "words"}
    rows = [Interval(name, one["estimate"], one["low"], one["high"]) for name, one in values.items()]
    title = "Change of held-out measures by 45 steps of GRPO, with 95 % intervals"
    path.write_bytes(svg_file(Intervals(title, rows, {"zero": 0.0})))


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=_ROOT / "docs/images", help="folder of the images")
    parser.add_argument("--demo", type=Path, help="folder of a run of the demo")
    given = parser.parse_args()
    folder: Path = given.output
    folder.mkdir(parents=True, exist_ok=True)
    if given.demo is not None:
        draw_demo(given.demo, folder / "demo.svg")
        return
    with tempfile.TemporaryDirectory() as work:
        pairs, scores = Path(work) / "pairs.csv", Path(work) / "scores.html"
        write_table(phantom_pairs(200), pairs)
        table = (str(pairs), "--metrics", "crg,crimson,rouge")
        _run("score", *table, "--html", str(scores), "--with-text", "--id-column", "study")
        other, comparison = Path(work) / "other.csv", Path(work) / "comparison.html"
        write_table(phantom_pairs(200, errors=0.5), other)
        options = ("--metrics", "crg,crimson,rouge", "--key", "study", "--permutations", "1000")
        _run("compare", f"first={pairs}", f"second={other}", *options, "--html", str(comparison), "--with-text")
        shots = [
            ("score_page", scores.as_uri(), "", 1280, False, 1300),
            ("report_view", scores.as_uri(), "#4", 1280, True, 850),
            ("compare_page", comparison.as_uri(), "", 1280, True, 1150),
        ]
        make_images(folder, shots)


if __name__ == "__main__":
    _main()
