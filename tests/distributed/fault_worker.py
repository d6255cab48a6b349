"""One of two processes of a run with a fault: fault_worker.py FAULT KIND RECIPE [options].

``FAULT`` is what happens in process 1: ``killed`` while it writes the second checkpoint; ``hangs`` or ``dies`` in the
second call of its reward. ``KIND`` is ``grpo``, started by torchrun, or ``policy``, which starts the other process.
In a run of one process, the second call of the reward fills the GPU's memory (``memory``), or ends the GPU's context
by an assertion (``assertion``).
"""

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

# As pytest has it, by its setting `pythonpath`; Lightning starts the other process with the same command.
sys.path.append(str(Path(__file__).resolve().parents[1] / "helpers"))


def end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(600)


def fill_memory() -> None:
    torch.empty(2**50, dtype=torch.uint8, device="cuda")


def fail_assertion() -> None:
    torch.ones(1, device="cuda")[torch.tensor([2], device="cuda")].item()


FAULTS = {"dies": end, "hangs": hang, "memory": fill_memory, "assertion": fail_assertion}


def kill_in_second_checkpoint() -> None:
    from transformers import Trainer

    save = Trainer._save_rng_state

    def killed(self: Any, folder: str) -> None:
        if folder.endswith("checkpoint-2"):
            end()
        save(self, folder)

    Trainer._save_rng_state = killed


def fail_in_second_reward(fault: str) -> None:
    from rrg_rewards.rewards import MetricReward

    reward, calls = MetricReward.__call__, []

    def faulty(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            FAULTS[fault]()
        return reward(self, *args, **options)

    MetricReward.__call__ = faulty


def main(fault: str, kind: str, *argv: str) -> None:
    from rrg_rewards.labelers import registry
    from rrg_rewards.recipes import grpo, policy

    registry._LABELERS["keywords"] = "words:WordLabeler"
    if fault in ("memory", "assertion"):
        fail_in_second_reward(fault)
    elif os.environ.get("LOCAL_RANK") == "1":
        if fault == "killed":
            kill_in_second_checkpoint()
        else:
            fail_in_second_reward(fault)
    (grpo.main if kind == "grpo" else policy.main)(["--config", *argv])


if __name__ == "__main__":
    # A process that hangs prints its stack and ends the run.
    faulthandler.dump_traceback_later(300, exit=True)
    main(*sys.argv[1:])
