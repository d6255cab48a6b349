"""Compare the tokens per second of vLLM and of transformers' generate, on the same CT-CHAT and prompts, on CPU.

python benchmarks/vllm_generation.py --folder runs/mini_ct_chat [--rows 64] [--tokens 64] [--rounds 3]

The folder contains the output of ``rrg_rewards.recipes.ct_chat.phantom --head-size 32``. The script needs vLLM
(docs/trl.md). It measures the mini model of the folder, and a wider one with random weights (8 layers of 512
channels), whose time is less dominated by Python. Both sides sample the same number of tokens in float32 for prompts
with different volumes; vLLM's caches of volumes and prompts are emptied before each run. The sides run in turn in one
process, after one run that is not counted, because vLLM compiles the model.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Before vLLM is imported.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
import vllm
from timing import in_turn, machine, seconds
from transformers import AutoModelForCausalLM, AutoProcessor, GenerationConfig

from rrg_rewards.data import read_table, write_json
from rrg_rewards.models import CTChatConfig, CTChatForConditionalGeneration
from rrg_rewards.recipes._outputs import versions

RESULTS = Path(__file__).parent / "results"
PROMPT = [{"role": "user", "content": "<image>\nReport. <report_generation>"}]


def write_wider(mini: Path, folder: Path) -> Path:
    """Write a CT-CHAT with more and wider layers, random weights and the mini model's processor."""
    config = CTChatConfig.from_pretrained(mini)
    sizes = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "head_dim": 64}
    config.text_config.update({**sizes, "num_attention_heads": 8, "num_key_value_heads": 8})
    torch.manual_seed(0)
    CTChatForConditionalGeneration(config).save_pretrained(folder)
    AutoProcessor.from_pretrained(mini, trust_remote_code=False).save_pretrained(folder)
    return folder


def sides(folder: Path, volumes: list[str], tokens: int) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Return functions that generate for all volumes with each side, and vLLM's engine."""
    processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False).eval()
    text = processor.apply_chat_template(PROMPT, add_generation_prompt=True, tokenize=False)
    inputs = processor(text=[text] * len(volumes), images=[[path] for path in volumes], return_tensors="pt")
    config = GenerationConfig(
        do_sample=True,
        top_k=0,
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        pad_token_id=processor.tokenizer.pad_token_id,
    )
    engine = vllm.LLM(str(folder), dtype="float32", max_model_len=inputs["input_ids"].shape[1] + tokens + 1)
    params = vllm.SamplingParams(max_tokens=tokens, min_tokens=tokens, ignore_eos=True, logprobs=0, detokenize=False)
    prompts = [
        {"prompt_token_ids": ids, "multi_modal_data": {"image": path}}
        for ids, path in zip(inputs["input_ids"].tolist(), volumes, strict=True)
    ]

    def with_transformers() -> None:
        with torch.inference_mode():
            found = model.generate(**inputs, generation_config=config)
        assert found.shape[1] - inputs["input_ids"].shape[1] == tokens

    def with_vllm() -> None:
        engine.reset_prefix_cache()
        engine.llm_engine.reset_encoder_cache()
        outputs = engine.generate(prompts, params, use_tqdm=False)
        assert {len(output.outputs[0].token_ids) for output in outputs} == {tokens}

    return {"transformers": with_transformers, "vllm": with_vllm}, engine


def main() -> None:
    """Measure both models and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the mini CT-CHAT")
    parser.add_argument("--rows", type=int, default=64, help="completions of a run (default: 64)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a completion (default: 64)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    parser.add_argument("--output", type=Path, default=RESULTS / "vllm_generation.json", help="file to write")
    arguments = parser.parse_args()
    names = read_table(arguments.folder / "train.jsonl").column("image")[: arguments.rows]
    volumes = [str(arguments.folder / name) for name in names]
    total, figures = arguments.rows * arguments.tokens, {}
    with TemporaryDirectory() as temporary:
        mini = arguments.folder / "model"
        for name, folder in {"mini": mini, "wider": write_wider(mini, Path(temporary))}.items():
            runs, engine = sides(folder, volumes, arguments.tokens)
            for run in runs.values():
                seconds(run)
            took = in_turn(runs, arguments.rounds)
            engine.llm_engine.engine_core.shutdown()
            figures[name] = {
                **{f"{side}_tokens_per_second": round(total / one.wall, 1) for side, one in took.items()},
                "vllm_to_transformers": round(took["transformers"].wall / took["vllm"].wall, 3),
                "vllm_to_transformers_processor_time": round(
                    took["transformers"].processor / took["vllm"].processor, 3
                ),
            }
    result = {
        "machine": {**machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "versions": {**versions(), "vllm": vllm.__version__},
        "completions": arguments.rows,
        "tokens_per_completion": arguments.tokens,
        "rounds": arguments.rounds,
        "figures": figures,
    }
    write_json(result, arguments.output, overwrite=True)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
