"""``rrg-rewards serve``: a reward over HTTP.

Serve a reward over HTTP, for trainers in other processes, environments, machines and languages. The server scores
concurrent requests in batches. All paths take POST and JSON (Content-Type: application/json):

  /rewards            {"completions": [...], "reference": [...]} -> {"rewards": [...], "scores": {...}, ...}
  /get_reward         OpenRLHF, --reward.remote_url http://HOST:PORT/get_reward
  /remote_rm          slime, --rm-type remote_rm --rm-url http://HOST:PORT/remote_rm
  /remote_rm/scores   slime, with --reward-key score
  /v1                 LLaMA-Factory, reward_model: http://HOST:PORT/v1 (needs --prompts)
  /health, /info and /metrics (Prometheus) take GET.

An unscorable completion has the reward null in /rewards. The other replies have no null and need --missing, the reward
of such completions, whose "scorable" is 0. Labels of OpenRLHF and slime are the reference, or a JSON object with all
columns of the reward.

The server listens on this machine only. For other addresses, put a token into the environment variable
RRG_REWARDS_TOKEN; clients send it as "Authorization: Bearer TOKEN", or in the address, http://any:TOKEN@HOST:PORT/.
A reward named module:function, also in the file of --config, runs the code of the module. --no-plugins refuses it: use
it for files that you did not write. Report text is never written to a log or an error. On SIGTERM, the server finishes
its requests and exits.

Examples:
  rrg-rewards fit train.csv --reward recommended --output reward.json
  rrg-rewards serve --config reward.json --workers 4
  rrg-rewards serve --reward crg --set prior=0.2
  rrg-rewards serve --reward crimson --context age=PatientAge --missing -1
  rrg-rewards serve --reward crepe --set model=my_crepe --device cuda --max-batch 128
  rrg-rewards serve --reward crg --set prior=0.2 --missing 0 --prompts train.jsonl
  curl --json '{"completions": ["Cardiomegaly."], "reference": ["Cardiomegaly."]}' http://127.0.0.1:8787/rewards

From Python, RemoteReward("http://127.0.0.1:8787") is the served reward. docs/trainers.md describes replies and limits.
"""

import argparse
import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from rrg_rewards.cli.options import (
    Plugins,
    RewardFile,
    UsageError,
    add_command_parser,
    add_reward_options,
    add_settings,
    settings_from,
)
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.integrations.serve.settings import ServerOptions, columns_by_prompt
from rrg_rewards.utilities.plugins import refuse_paths
from rrg_rewards.utilities.settings import SettingError, Settings, setting

if TYPE_CHECKING:
    from rrg_rewards.rewards.base import Reward

# Limits that --config may contain; their options replace them.
_OF_CONFIG = ("max_batch", "max_wait_ms")
# Settings of the server that are options of the reward or of the service.
_OF_REWARD = ("reward", "reference_column", "prompts")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Service(Settings):
    """Where and how the reward is served."""

    prompts: str | None = setting(
        None, "for /v1: table with the prompts and the columns of the reward", metavar="TABLE"
    )
    prompt_column: str = setting("prompt", "column of `prompts`", metavar="NAME")
    host: str = setting("127.0.0.1", "address", metavar="NAME")
    port: int = setting(8787, "port; 0 for a free one", metavar="N", minimum=0, maximum=65535)
    max_request_mb: int = setting(16, "megabytes of a request; longer ones get HTTP 413", metavar="N", minimum=1)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``serve`` to the command line."""
    parser = add_command_parser(commands, "serve", _run, summary, __doc__)
    add_reward_options(parser, "reference_column", "labeler", "judge", "context", "set", "device")
    add_settings(parser, _Service)
    add_settings(parser, Plugins)
    of_config: dict[str, Any] = {name: {"default": None} for name in _OF_CONFIG}
    add_settings(parser, ServerOptions, **of_config)


def _configured(path: str) -> tuple["Reward", dict[str, Any]]:
    """Return the reward of a file, and the settings of the server that the file contains."""
    from rrg_rewards.integrations.common.settings import read_settings, read_settings_file

    settings = read_settings({"config": path})
    # The defaults of a server differ from those of a trainer's workers.
    limits = {name: getattr(settings, name) for name in _OF_CONFIG if name in read_settings_file(path)}
    shared = ("missing", "reference_column", "score_range")
    return settings.make_reward(), {**{name: getattr(settings, name) for name in shared}, **limits}


def _reward(choice: RewardFile) -> tuple["Reward", dict[str, Any]]:
    """Return the reward, and the settings of the server of ``--config`` or of the options."""
    if choice.config is not None:
        return _configured(choice.config)
    from rrg_rewards.analysis.metric_choice import choose_reward
    from rrg_rewards.utilities.yaml_files import parse_yaml

    # As in --set, a number is the index of a GPU.
    device = {} if choice.device is None else {"device": parse_yaml(choice.device)}
    column = choice.reference_column or "reference"
    return choose_reward(replace(choice, set={**choice.set, **device}, reference_column=column)), {
        "reference_column": column
    }


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.utilities.imports import require

    choice, service = settings_from(args, RewardFile), settings_from(args, _Service)
    if args.no_plugins:
        refuse_paths()
    for module in ("uvicorn", "starlette", "prometheus_client"):
        require(module, extra="serve")
    from rrg_rewards.data.tables.readers import read_table
    from rrg_rewards.integrations.serve.run import bind, run_server

    reward, server = _reward(choice)
    limits = {one.name: getattr(args, one.name) for one in fields(ServerOptions) if hasattr(args, one.name)}
    server |= {name: value for name, value in limits.items() if value is not None and name not in _OF_REWARD}
    if server.get("missing") == "mean":
        raise UsageError("argument --config: missing must be a number, because workers share no mean")
    try:
        if service.prompts is not None:
            table = read_table(service.prompts)
            server["prompts"] = columns_by_prompt(table, service.prompt_column, reward, server["reference_column"])
        options = ServerOptions(
            reward,
            token=os.environ.get("RRG_REWARDS_TOKEN"),
            max_request_bytes=service.max_request_mb * 2**20,
            max_total_bytes=max(256, service.max_request_mb) * 2**20,
            **server,
        )
    except SettingError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        listener = bind(service.host, service.port, options.token, options.workers)
    except ValueError as error:
        raise UsageError(f"argument --host: {error}: set the environment variable RRG_REWARDS_TOKEN") from error
    host, port = listener.getsockname()[:2]
    terminal.note(f"serving {reward.signature} at http://{f'[{host}]' if ':' in host else host}:{port}")
    return 0 if run_server(options, listener) else 1
