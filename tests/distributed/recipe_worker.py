"""One process of a recipe run that records the calls of its reward, and how the policy is stored during each call.

The arguments are a folder for the records and the recipe's command line. If that folder contains ``replay.json``, with
the tokens of all completions by step, training uses these completions instead of sampling.
"""

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any

import torch

from rrg_rewards.metrics import CREPE, ER2Score
from rrg_rewards.recipes import _evaluate, grpo
from rrg_rewards.rewards import MetricReward


def replay_completions(policy: Any, by_step: list[list[list[int]]]) -> None:
    generate = policy.generate

    def replayed(input_ids: torch.Tensor, generation_config: Any, **options: Any) -> torch.Tensor:
        if not generation_config.do_sample:
            return generate(input_ids=input_ids, generation_config=generation_config, **options)
        completions = [torch.tensor(tokens) for tokens in by_step.pop(0)]
        padding = generation_config.pad_token_id
        padded = torch.nn.utils.rnn.pad_sequence(completions, batch_first=True, padding_value=padding)
        return torch.cat([input_ids, padded.to(input_ids.device)], dim=1)

    policy.generate = replayed


def backend(reward: Any) -> Any:
    """Return the backend with the model of a reward."""
    return reward.metric.predictor if isinstance(reward.metric, CREPE | ER2Score) else reward.metric.labeler


def train(folder: str, *argv: str) -> Any:
    trainers, calls = [], []
    make_trainer, reward_of = grpo.make_trainer, MetricReward.__call__

    def noted_trainer(*args: Any, **options: Any) -> Any:
        trainers.append(make_trainer(*args, **options))
        loaded = ["_model" in vars(backend(reward)) for reward in trainers[0].reward_funcs]
        assert loaded == [False], "the reward's model is to be loaded after the policy"
        if (replay := Path(folder, "replay.json")).is_file():
            replay_completions(trainers[0].model, json.loads(replay.read_text()))
        return trainers[0]

    def noted_reward(self: MetricReward, completions: Any, **columns: Any) -> list[float | None]:
        values = reward_of(self, completions, **columns)
        texts = [completion[0]["content"] for completion in completions]
        policy, model = trainers[0].model, backend(self)._model
        calls.append(
            {
                "completions": texts,
                "tokens": columns["completion_ids"],
                "references": columns["impression"],
                "values": values,
                "whole": [name for name, value in policy.named_parameters() if value.numel()],
                "model_empty": sorted({value.numel() == 0 for value in model.parameters()}),
            }
        )
        return values

    grpo.make_trainer, MetricReward.__call__ = noted_trainer, noted_reward
    trainer = grpo.run(*grpo.parse(argv))
    result = {
        "world_size": trainer.args.world_size,
        "distributed": str(trainer.accelerator.distributed_type.value),
        "device": str(trainer.accelerator.device),
        "calls": calls,
        "history": trainer.state.log_history,
    }
    Path(folder, f"rank{trainer.args.process_index}.json").write_text(json.dumps(result))
    trainers.clear()
    return trainer.accelerator


if __name__ == "__main__":
    _evaluate._NUM_RESAMPLES = 50
    # A process that hangs prints its stack and ends the run.
    faulthandler.dump_traceback_later(270, exit=True)
    grpo.finish(train(*sys.argv[1:]))
