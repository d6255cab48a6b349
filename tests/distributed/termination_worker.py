"""One of two processes of a run that the system ends: termination_worker.py KIND FOLDER RECIPE; started by torchrun.

``KIND`` is ``recipe`` or ``train``. Process 1 sends SIGTERM to itself during the second step, and ``train`` also to
process 0 in the third. Each process writes its exit code to ``FOLDER``.
"""

import faulthandler
import os
import signal
import sys
from pathlib import Path
from typing import Any

# Not set where pytest imports the file.
RANK = int(os.environ.get("RANK", "-1"))


def end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def run_recipe(recipe: str) -> int:
    from transformers import TrainerCallback

    from rrg_rewards.labelers import registry
    from rrg_rewards.recipes.grpo import parse, run

    class End(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1 and RANK == 1:
                end()

    registry._LABELERS["keywords"] = "words:WordLabeler"
    try:
        run(*parse(["--config", recipe]), callbacks=[End()])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def run_train(recipe: str) -> int:
    from rrg_rewards.cli.main import main
    from rrg_rewards.training import CrepeModule

    def backward(self: Any, loss: Any, *args: Any, **options: Any) -> None:
        # Before the gradients are exchanged: the signal reaches the processes in different places.
        if self.trainer.global_step == 1 and RANK == 1:
            end()
        loss.backward(*args, **options)
        if self.trainer.global_step == 1 and RANK == 0:
            end()

    CrepeModule.backward = backward
    return main(["train", "crepe", "--config", recipe, "--trainer.devices", "2", "--trainer.strategy", "ddp"])


if __name__ == "__main__":
    kind, folder, recipe = sys.argv[1:]
    # A process that hangs prints its stack and ends the run.
    faulthandler.dump_traceback_later(180, exit=True)
    code = {"recipe": run_recipe, "train": run_train}[kind](recipe)
    Path(folder, f"code{RANK}").write_text(str(code))
