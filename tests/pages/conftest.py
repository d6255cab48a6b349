"""Pages of real results, and a browser."""

import json
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
from browser import open_chromium
from words import WordLabeler

from rrg_rewards.cli.main import main
from rrg_rewards.data.tables.table import Table
from rrg_rewards.data.tables.writers import write_table
from rrg_rewards.metrics.unread import UnreadWarning
from rrg_rewards.pages import write_watch_page
from rrg_rewards.watch import RewardWatch

SCRIPT = '</script><script>document.title = "attacked"</script><img src="http://localhost/x" onerror="alert(1)">'
PAIRS = [
    ("Large left pneumothorax. Heart size is normal.", "Large right pneumothorax. Cardiomegaly."),
    ("Emphysema. Small pleural effusion.", "Emphysema."),
    ("Atelectasis of the left lower lobe.", f"Atelectasis of the left lower lobe. {SCRIPT}"),
    *[
        (f"Nodule of {size} mm in the right upper lobe.", "Nodule of 5 mm in the right upper lobe.")
        for size in range(5, 70)
    ],
]
# Output files of a run of the recipe smollm2/impression_grpo_crg.
_RUN = Path(__file__).parents[2] / "benchmarks/results/smollm2_impression_grpo_crg"


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    names = [f"study-{row}" for row in range(len(PAIRS))]
    references, predictions = zip(*PAIRS, strict=True)
    rating = [row % 5 for row in range(len(PAIRS))]
    write_table(Table({"study": names, "reference": references, "prediction": predictions, "rating": rating}), path)
    return path


@pytest.fixture(scope="session")
def watch_history():
    """The history of a watch of a policy whose reports become longer, with alarms."""
    watch = RewardWatch(labeler=WordLabeler("effusion nodule"), block_reports=8, baseline_reports=24, window_reports=24)
    for step in range(1, 17):
        texts = ["Effusion." if step < 7 else "Effusion. " * 9] * 8
        watch.observe(texts, ["Nodule."] * 8, rewards={"r": [0.1 * step] * 8})
        watch.step(step)
    assert watch.alarms
    return watch.history()


@pytest.fixture(scope="session")
def score_page(pairs):
    """The page of ``score`` with text."""
    path = pairs.parent / "score.html"
    command = ["score", str(pairs), "--metrics", "crg,crimson,rouge", "--html", str(path), "--with-text", "--quiet"]
    with warnings.catch_warnings():
        # One report is a script, which no rule reads.
        warnings.simplefilter("ignore", UnreadWarning)
        assert (
            main([*command, "--id-column", "study", "--bootstrap", "50", "--json", str(path.with_suffix(".json"))]) == 0
        )
    return path


@pytest.fixture(scope="session")
def other_pages(pairs, watch_history):
    """The pages of the other commands, of a run and of its watch, with text."""
    folder = pairs.parent
    run = folder / "run"
    shutil.copytree(_RUN, run)
    rows = [{"reference": "Normal.", "report": SCRIPT}] * 2
    for stage in ("before", "after"):
        (run / f"heldout_{stage}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    few = ["--bootstrap", "20", "--permutations", "20"]
    options = {
        "attack": ["--reward", "rouge", "--families", "normal,reports", "--budget", "20000"],
        "agreement": ["--metrics", "rouge", "--human", "rating", *few],
        "compare": [
            "--metrics",
            "crimson",
            *(f"--prediction-column={name}" for name in ("prediction", "copy=reference")),
            *few,
        ],
    }
    for command, given in options.items():
        page = str(folder / f"{command}.html")
        assert main([command, str(pairs), *given, "--html", page, "--with-text", "--quiet"]) == 0
    assert main(["recipes", "page", str(run), "--with-text", "--html", str(folder / "run.html"), "--quiet"]) == 0
    return [*(folder / f"{name}.html" for name in (*options, "run")), write_watch_page(watch_history, folder)]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with open_chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core, from the file in ``AXE_CORE`` or from npm."""
    if path := os.environ.get("AXE_CORE"):
        return Path(path).read_text(encoding="utf-8")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("axe-core: AXE_CORE is not set, and npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "pack", "axe-core@4.14.1", "--silent"]
    packed = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    if packed.returncode:
        pytest.skip("axe-core: npm could not fetch it")
    shutil.unpack_archive(next(folder.glob("*.tgz")), folder, filter="data")
    return (folder / "package/axe.min.js").read_text(encoding="utf-8")
