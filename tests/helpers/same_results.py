"""Scores a small table and makes rewards, and writes the results: ``same_results.py FOLDER TABLE WORKERS DISK``."""

import csv
import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPORTS = (
    "Heart size is normal. 5 mm solid subpleural nodule in the posterobasal segment of the right lower lobe.",
    "Patchy ground glass opacities in both lungs, consolidation in the left lower lobe. Cardiomegaly. No effusion.",
    "Emphysema in both upper lobes. Calcified plaques in the aorta and coronary arteries. Hiatal hernia.",
    "Small left pleural effusion with adjacent atelectasis. Lymph nodes up to 12 mm. Kein Pneumothorax links.",
)
METRICS = "crg,crimson,ct_finebench,label_f1,rouge,bleu,chrf,cider"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def protect_files(folder: Path) -> None:
    """Let all writing outside of the folder fail as on a read-only disk."""
    places = {"open": 0, "os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.symlink": 1, "os.link": 1}

    def check(event: str, given: tuple[Any, ...]) -> None:
        path = given[places[event]] if event in places else None
        if event == "open" and not (isinstance(given[2], int) and given[2] & _WRITING):
            return
        if isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path) != os.devnull:
            place = Path(os.fsdecode(path)).resolve()
            if folder not in (place, *place.parents):
                raise OSError(errno.EROFS, "read-only", path)

    sys.addaudithook(check)


def write_results(folder: Path, name: str, workers: str) -> None:
    from rrg_rewards import make_metric, make_reward
    from rrg_rewards.cli.main import main
    from rrg_rewards.findings import extract_findings, inject_errors
    from rrg_rewards.questions.engine import build_items

    pairs = [(first, second) for first in REPORTS for second in REPORTS]
    preds, refs = ([*column] for column in zip(*pairs, strict=True))
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        rows = ((*pair, 30 + row) for row, pair in enumerate(pairs))
        csv.writer(file).writerows([("prediction", "reference", "age"), *rows])
    output = folder / f"scores_{name}"
    arguments = ["score", str(folder / name), "--metrics", METRICS, "--context", "age=age", "--workers", workers]
    # No assertion, which -O leaves out.
    if code := main([*arguments, "--output", str(output), "--json", f"{output}.json"]):
        sys.exit(code)
    reward = make_reward("recommended").fit(reference=refs)
    (folder / "results.json").write_text(
        json.dumps(
            {
                "table": output.read_bytes().decode("utf-8"),
                "summary": {**json.loads(Path(f"{output}.json").read_bytes()), "table": None},
                "metrics": {
                    metric: _numbers(metric, preds, refs, make_metric) for metric in ("crimson", "ct_finebench")
                },
                "findings": [repr(extract_findings(report)) for report in REPORTS],
                "items": [repr(build_items(report)) for report in REPORTS],
                "errors": [repr(inject_errors(report, seed=7)) for report in REPORTS],
                "rewards": [reward.signature, repr(reward.fitted_options()), repr(reward(preds, reference=refs))],
            }
        ),
        encoding="utf-8",
    )


def _numbers(metric: str, preds: Sequence[str], refs: Sequence[str], make_metric: Any) -> Any:
    scores = make_metric(metric).score(preds, refs)
    details = {name: [value.hex() for value in values.tolist()] for name, values in scores.details.items()}
    return [details, {name: list(texts) for name, texts in scores.explanations.items()}]


if __name__ == "__main__":
    if sys.argv[4] == "read-only":
        protect_files(Path(sys.argv[1]).resolve())
    write_results(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
