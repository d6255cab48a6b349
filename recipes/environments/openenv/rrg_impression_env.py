"""Environment of OpenEnv: write the impression of a report from its findings, in one step.

``python -m rrg_impression_env --table train.csv --config reward.json``
"""

import argparse
import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from rrg_rewards.integrations.common.scoring import get_trainer_reward
from rrg_rewards.recipes.environments.studies import PHANTOM_SETTINGS, PROMPT, StudyTask, study_tasks


class ImpressionAction(Action):
    """The completion."""

    completion: str


class ImpressionObservation(Observation):
    """The prompt, and after the step the sub-scores of its reward; ``None`` where they are undefined."""

    prompt: str
    study: int
    metrics: dict[str, float | None] = {}  # noqa: RUF012 (pydantic copies defaults)


class ImpressionEnvironment(Environment[ImpressionAction, ImpressionObservation, State]):
    """One study per episode, which ends after one step."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: Sequence[StudyTask], settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._tasks, self._reward = tasks, get_trainer_reward(settings)
        self._state, self._study = State(), None

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, study: int | None = None
    ) -> ImpressionObservation:
        """Begin an episode with a study: that of a given index, or a random one."""
        chosen = random.Random(seed).randrange(len(self._tasks)) if study is None else study
        if not 0 <= chosen < len(self._tasks):
            raise ValueError(f"study must be an index from 0 to {len(self._tasks) - 1}, got {study}")
        self._study, self._state = chosen, State(episode_id=episode_id or str(uuid4()))
        return ImpressionObservation(prompt=self._tasks[chosen].prompt, study=chosen)

    def step(self, action: ImpressionAction) -> ImpressionObservation:
        """Reward the completion and end the episode."""
        if self._study is None or self._state.step_count:
            raise ValueError("there is no episode: reset first, in the same WebSocket session, once for each step")
        self._state.step_count += 1
        task = self._tasks[self._study]
        numbers = self._reward.reward_one(action.completion, task.columns).numbers()
        metrics = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        return ImpressionObservation(
            prompt=task.prompt, study=self._study, done=True, reward=metrics.pop("score"), metrics=metrics
        )

    @property
    def state(self) -> State:
        """Episode and number of steps."""
        return self._state


def make_app(settings: Mapping[str, Any] = PHANTOM_SETTINGS, max_sessions: int = 256, **studies: Any) -> Any:
    """Return the server's application; ``studies`` are arguments of ``study_tasks``."""
    make = partial(ImpressionEnvironment, study_tasks(settings, **studies), settings)
    return create_app(
        make, ImpressionAction, ImpressionObservation, env_name="rrg_impression_env", max_concurrent_envs=max_sessions
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Serve the environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", metavar="FILE", help="CSV, JSONL or Parquet file (default: phantom studies)")
    parser.add_argument("--config", metavar="FILE", help="settings of the reward (default: CRG for phantom studies)")
    parser.add_argument("--prompt", default=PROMPT, help="prompt with columns of the table in braces")
    parser.add_argument("--findings-column", default="findings", metavar="NAME", help="(default: findings)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args(argv)
    settings = PHANTOM_SETTINGS if given.config is None else {"config": given.config}
    app = make_app(settings, table=given.table, prompt=given.prompt, findings_column=given.findings_column)
    uvicorn.run(app, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
