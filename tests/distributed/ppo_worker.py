"""One process of a distributed run of PPO; started by torchrun with the recipe and a folder for its results."""

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any

from rrg_rewards.labelers import registry
from rrg_rewards.recipes.ppo import finish, parse, run


def train(config: str, folder: str) -> Any:
    trainer = run(*parse(["--config", config]))
    result = {
        "world_size": trainer.args.world_size,
        "scores": [entry["objective/scores"] for entry in trainer.state.log_history if "episode" in entry],
        "weights": sum(float(weights.detach().double().abs().sum()) for weights in trainer.model.parameters()),
    }
    Path(folder, f"rank{trainer.accelerator.process_index}.json").write_text(json.dumps(result))
    return trainer.accelerator


if __name__ == "__main__":
    # A process that hangs prints its stack and ends the run.
    faulthandler.dump_traceback_later(450, exit=True)
    registry._LABELERS["keywords"] = "words:WordLabeler"
    finish(train(*sys.argv[1:]))
