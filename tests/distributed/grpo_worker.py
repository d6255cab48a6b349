"""One process of a distributed recipe run; started by torchrun with the recipe and a folder for its results."""

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any

from rrg_rewards.judges import registry as judges
from rrg_rewards.labelers import registry
from rrg_rewards.recipes import _evaluate
from rrg_rewards.recipes.grpo import finish, parse, run
from rrg_rewards.rewards import CRGReward


def train(config: str, folder: str) -> Any:
    trainer = run(*parse(["--config", config]))
    result = {
        "world_size": trainer.args.world_size,
        "steps": trainer.state.global_step,
        "weights": sum(float(weights.detach().double().abs().sum()) for weights in trainer.model.parameters()),
        "priors": [reward.prior for reward in trainer.reward_funcs if isinstance(reward, CRGReward)],
        "history": trainer.state.log_history,
    }
    Path(folder, f"rank{trainer.args.process_index}.json").write_text(json.dumps(result))
    return trainer.accelerator


if __name__ == "__main__":
    _evaluate._NUM_RESAMPLES = 50
    # A process that hangs prints its stack and ends the run.
    faulthandler.dump_traceback_later(180, exit=True)
    registry._LABELERS["keywords"] = "words:WordLabeler"
    judges._JUDGES["scripted"] = "scripted_judge:ScriptedJudge"
    finish(train(*sys.argv[1:]))
