"""One process of a Lightning run with VLLMGenerator: ``vllm_worker.py FOLDER``, launched by torchrun."""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))

from tiny_generator import train

from rrg_rewards.models import CTChatForConditionalGeneration, CTChatProcessor
from rrg_rewards.training import CTChatGenerator, PolicyDataModule, PolicyModule, VLLMGenerator


def letters(completions: list[Any], **columns: Any) -> list[float]:
    return [float(sum(map(ord, one[0]["content"])) % 97) for one in completions]


def main(folder: Path) -> None:
    processor = CTChatProcessor.from_pretrained(folder / "model")
    model = CTChatForConditionalGeneration.from_pretrained(folder / "model")
    inner = CTChatGenerator(model, processor, max_new_tokens=8, temperature=2.0)
    generator = VLLMGenerator(inner, max_model_len=64, engine_options={"enforce_eager": True})
    volumes = sorted(map(str, (folder / "volumes").iterdir()))
    rows = [{"prompt": [{"role": "user", "content": "report"}], "image": volumes[row % 3]} for row in range(8)]
    module = PolicyModule(generator, letters, num_generations=4, learning_rate=5e-3)
    data = PolicyDataModule(rows, batch_size=2, collate=generator.collate)
    history = train(module, 3, data=data, devices=2, strategy="ddp")
    projector = float(model.model.mm_projector.ln.weight.detach().sub(1).abs().max())
    found = {"differences": history["sampling/sampling_logp_difference/mean"], "projector": projector}
    (folder / f"{os.environ['LOCAL_RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
