"""Attack the rewards by rules on report pairs of real systems.

python benchmarks/reward_attack.py --corpus ctrg --rewards crimson,crg

The pairs are read from the shared folder; --help lists the corpora. Each result is written without report text to
benchmarks/results/reward_attack/<corpus>_<reward>.json.
"""

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

from benchmark_data import SHARED, need

from rrg_rewards.attack import attack_reward
from rrg_rewards.data import write_json
from rrg_rewards.rewards import Reward, make_reward

RESULTS = Path(__file__).parent / "results" / "reward_attack"
CORPORA = {
    "ctrg": ("reg2rg_ctrg/pairs.csv", "GT_whole_report", "Pred_whole_report", "rules:ct_rate"),
    "ct_rate": ("reg2rg_ct_rate/pairs.csv", "reference", "prediction", "rules:ct_rate"),
    "iu_xray": ("iu_xray/systems.csv", "reference", "sft_model", "rules:chexbert"),
}
# Name, reward and options of each reward, and the baseline of its constant texts.
REWARDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "crimson": ("crimson", {}, "blank"),
    "crimson_training": ("crimson", {"form": "training"}, "honest"),
    "recommended": ("recommended", {}, "honest"),
    "crg": ("crg", {}, "honest"),
    "crg_macro": ("crg", {"average": "macro"}, "honest"),
    "ct_finebench_f1": ("ct_finebench", {"mode": "f1"}, "honest"),
    "ct_finebench_recall": ("ct_finebench", {"mode": "recall"}, "honest"),
    "ct_finebench_chance": ("ct_finebench", {"chance": "dataset"}, "honest"),
    "rouge": ("rouge", {}, "honest"),
    "bleu": ("bleu", {}, "honest"),
    "repetition": ("repetition", {}, "honest"),
    "format": ("format", {"sections": ["Findings", "Impression"]}, "honest"),
    "overlong": ("overlong", {"max_length": 300, "buffer": 50}, "honest"),
}


def load(corpus: str) -> tuple[list[str], list[str], str]:
    """Read the references and a system's reports of a corpus, and the labeler for it."""
    name, reference, prediction, labeler = CORPORA[corpus]
    path = SHARED / name
    need(path, f"the pairs of {corpus}")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row[reference] and row[prediction]]
    return [row[reference] for row in rows], [row[prediction] for row in rows], labeler


def build(name: str, labeler: str) -> Reward:
    """Make one of the rewards."""
    reward, options, _ = REWARDS[name]
    return make_reward(reward, **options, **({"labeler": labeler} if reward == "crg" else {}))


def main() -> None:
    """Attack rewards on a corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", choices=tuple(CORPORA), required=True)
    parser.add_argument("--rewards", default="crimson,ct_finebench_f1,crg", help="separated by commas")
    parser.add_argument("--budget", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    references, honest, labeler = load(arguments.corpus)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in arguments.rewards.split(","):
        start = time.process_time()
        reward = build(name, labeler).fit(reference=references)
        result = attack_reward(
            reward,
            {"reference": references},
            honest=honest,
            against="blank" if REWARDS[name][2] == "blank" else "honest",
            budget=arguments.budget,
            seed=arguments.seed,
        )
        record = {"corpus": arguments.corpus, **result.to_dict(quotes=False)}
        write_json(record, RESULTS / f"{arguments.corpus}_{name}.json", overwrite=True)
        best = result.best
        line = {key: getattr(result, key) for key in ("blank", "honest", "reference", "calls")}
        line |= {"best": best.family, "reward": best.reward, "gain": best.gain, "interval": best.interval}
        seconds = round(time.process_time() - start, 1)
        print(arguments.corpus, name, json.dumps({**line, "outcome": result.outcome, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
