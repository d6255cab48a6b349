"""``rrg-rewards serve``: a reward over HTTP."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from rrg_rewards.analysis.settings import RewardChoice
from rrg_rewards.cli.options import UsageError, add_command_parser, add_settings, positive_int, settings_from
from rrg_rewards.cli.terminal import Terminal
from rrg_rewards.integrations.serve.settings import ServerOptions, columns_by_prompt
from rrg_rewards.utilities.plugins import refuse_paths
from rrg_rewards.utilities.settings import SettingError

if TYPE_CHECKING:
    from rrg_rewards.rewards.base import Reward

# Limits that --config may contain; their options replace them.
_OF_CONFIG = ("max_batch", "max_wait_ms")

_DESCRIPTION = """\
Serve a reward over HTTP, for trainers in other processes, environments, machines and languages. Single completions of
concurrent requests are scored in batches. All paths take POST and JSON (Content-Type: application/json):

  /rewards            {"completions": [...], "reference": [...]} -> {"rewards": [...], "scores": {...}, ...}
  /get_reward         OpenRLHF, --reward.remote_url http://HOST:PORT/get_reward
  /remote_rm          slime, --rm-type remote_rm --rm-url http://HOST:PORT/remote_rm
  /remote_rm/scores   slime, with --reward-key score
  /v1                 LLaMA-Factory, reward_model: http://HOST:PORT/v1 (needs --prompts)
  /health, /info and /metrics (Prometheus) take GET.

An unscorable completion has the reward null in /rewards. The other replies cannot carry null; they need --missing, the
reward of such completions, and mark them by "scorable": 0. Labels of OpenRLHF and slime are the reference, or a JSON
object with all columns of the reward.

The server listens on this machine only. For other addresses, put a token into the environment variable
RRG_REWARDS_TOKEN; clients send it as "Authorization: Bearer TOKEN", or in the address, http://any:TOKEN@HOST:PORT/.
A reward named module:function, also in the file of --config, runs the code of the module. --no-plugins refuses it: use
it for files that you did not write. Report text is never written to a log or an error. On SIGTERM, the server finishes
its requests and exits.

examples:
  rrg-rewards serve --reward crg --set prior=0.2
  rrg-rewards fit train.csv --reward crg --set average=macro --output reward.json
  rrg-rewards serve --config reward.json --workers 4
  rrg-rewards serve --reward crimson --context age=PatientAge --missing -1
  rrg-rewards serve --reward crepe --set model=my_crepe --device cuda --max-batch 128
  rrg-rewards serve --reward crg --set prior=0.2 --missing 0 --prompts train.jsonl
  curl --json '{"completions": ["Cardiomegaly."], "reference": ["Cardiomegaly."]}' http://127.0.0.1:8787/rewards

From Python, RemoteReward("http://127.0.0.1:8787") is the served reward. docs/serve.md describes replies and limits.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", summary: str) -> None:
    """Add ``serve`` to the command line."""
    parser = add_command_parser(commands, "serve", _run, summary, _DESCRIPTION)
    given = parser.add_mutually_exclusive_group(required=True)
    add_settings(given, RewardChoice, "reward", reward={"required": False, "help": "reward to serve, for example crg"})
    given.add_argument("--config", metavar="FILE", help="YAML file of settings, or what rrg-rewards fit has written")
    parser.add_argument(
        "--no-plugins", action="store_true", help="refuse rewards, metrics and functions by path (module:function)"
    )
    column = {"default": None, "help": "column of references, with --reward (default: reference)"}
    names = ("reference_column", "labeler", "judge", "context", "set")
    add_settings(parser, RewardChoice, *names, reference_column=column)
    parser.add_argument("--device", metavar="NAME", help="device of the reward's model, for example cuda or cuda:1")
    add_settings(parser, ServerOptions, "missing")
    parser.add_argument(
        "--prompts", metavar="TABLE", help="for /v1: table with the prompts and the columns of the reward"
    )
    parser.add_argument(
        "--prompt-column", default="prompt", metavar="NAME", help="column of --prompts (default: %(default)s)"
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="address (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=8787, metavar="N", help="port; 0 for a free one (default: 8787)")
    of_config: dict[str, Any] = {name: {"default": None} for name in _OF_CONFIG}
    limits = ("max_pending", "timeout", "max_characters", "max_connections", "max_connections_per_address")
    add_settings(parser, ServerOptions, "workers", *of_config, *limits, **of_config)
    parser.add_argument(
        "--max-request-mb",
        type=positive_int,
        default=16,
        metavar="N",
        help="megabytes of a request; longer ones get HTTP 413 (default: 16)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be in 0 to 65535, got {text!r}")
    return int(text)


def _configured(path: str, missing: float | None) -> tuple["Reward", dict[str, Any]]:
    """Return the reward of a file, and the settings of the server that the file contains."""
    from rrg_rewards.integrations.common.settings import read_settings, read_settings_file

    settings = read_settings({"config": path})
    missing_reward = settings.missing if missing is None else missing
    if missing_reward == "mean":
        raise UsageError("argument --config: missing must be a number, because workers share no mean")
    # The defaults of a server differ from those of a trainer's workers.
    limits = {name: getattr(settings, name) for name in _OF_CONFIG if name in read_settings_file(path)}
    return settings.make_reward(), {
        "missing": missing_reward,
        "reference_column": settings.reference_column,
        "extractor": settings.extractor,
        "score_range": settings.score_range,
        **limits,
    }


def _reward(args: argparse.Namespace) -> tuple["Reward", dict[str, Any]]:
    """Return the reward, and the settings of the server of ``--config`` or of the options."""
    if args.config is not None:
        names = ("labeler", "judge", "context", "set", "device", "reference_column")
        if unused := [name.replace("_", "-") for name in names if getattr(args, name) not in (None, {})]:
            raise UsageError(f"argument --{unused[0]}: has no effect with --config; put it into the file")
        reward, server = _configured(args.config, args.missing)
    else:
        import yaml

        from rrg_rewards.analysis.metric_choice import choose_reward

        # As in --set, a number is the index of a GPU.
        options = args.set if args.device is None else {**args.set, "device": yaml.safe_load(args.device)}
        column = args.reference_column or "reference"
        reward = choose_reward(settings_from(args, RewardChoice, set=options, reference_column=column))
        server = {"missing": args.missing, "reference_column": column}
    return reward, {**server, **{name: value for name in _OF_CONFIG if (value := getattr(args, name)) is not None}}


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    from rrg_rewards.utilities.imports import require

    if args.no_plugins:
        refuse_paths()
    for module in ("uvicorn", "starlette", "prometheus_client"):
        require(module, extra="serve")
    from rrg_rewards.data.tables.readers import read_table
    from rrg_rewards.integrations.serve.run import bind, run_server

    reward, server = _reward(args)
    try:
        if args.prompts is not None:
            table = read_table(args.prompts)
            server["prompts"] = columns_by_prompt(table, args.prompt_column, reward, server["reference_column"])
        options = ServerOptions(
            reward,
            token=os.environ.get("RRG_REWARDS_TOKEN"),
            max_pending=args.max_pending,
            timeout=args.timeout,
            max_characters=args.max_characters,
            max_connections=args.max_connections,
            max_connections_per_address=args.max_connections_per_address,
            max_request_bytes=args.max_request_mb * 2**20,
            max_total_bytes=max(256, args.max_request_mb) * 2**20,
            workers=args.workers,
            **server,
        )
    except SettingError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
    try:
        listener = bind(args.host, args.port, options.token, options.workers)
    except ValueError as error:
        raise UsageError(f"argument --host: {error}: set the environment variable RRG_REWARDS_TOKEN") from error
    host, port = listener.getsockname()[:2]
    terminal.note(f"serving {reward.signature} at http://{f'[{host}]' if ':' in host else host}:{port}")
    return 0 if run_server(options, listener) else 1
