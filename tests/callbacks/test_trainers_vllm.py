"""vLLM in TRL's trainers: the reset of its encoder cache, on real engines too, and the logged difference of samples."""

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_ct_chat import save_tiny_ct_chat, save_volumes
from tiny_policy import WORDS
from vllm_on_cpu import start_engines_quickly

from rrg_rewards.callbacks import ResetVLLMEncoderCache
from rrg_rewards.utilities.vllm_cpu import keep_cpu_weights


class Generation:
    """TRL's object for an engine in the process, which notes the order of calls."""

    mode = "colocate"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.llm = SimpleNamespace(
            llm_engine=SimpleNamespace(reset_encoder_cache=lambda: self.calls.append("reset encoder cache"))
        )

    def sync_weights(self) -> None:
        self.calls.append("push weights")


def test_reset_vllm_encoder_cache_the_cache_is_reset_after_each_push_and_once() -> None:
    trainer = SimpleNamespace(vllm_generation=Generation())
    callback = ResetVLLMEncoderCache(trainer)
    # A trainer that trains twice, and a second callback.
    for one in (callback, callback, ResetVLLMEncoderCache(trainer)):
        one.on_train_begin(None, None, None)
    for _ in range(2):
        trainer.vllm_generation.sync_weights()
    assert trainer.vllm_generation.calls == ["push weights", "reset encoder cache"] * 2


def test_reset_vllm_encoder_cache_a_trainer_without_vllm() -> None:
    with pytest.raises(ValueError, match="SimpleNamespace does not generate with vLLM; set use_vllm=True"):
        ResetVLLMEncoderCache(SimpleNamespace())


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.server.calls.append(self.path)  # type: ignore[attr-defined]
            self.send_response(self.server.status)  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        one.status, one.calls = 200, []  # type: ignore[attr-defined]
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


@pytest.mark.parametrize("main", [True, False])
def test_reset_vllm_encoder_cache_the_main_process_resets_the_cache_of_a_server(server: Any, main: bool) -> None:
    trainer = on_server(server, main)
    trainer.vllm_generation.sync_weights()
    assert server.calls == (["/reset_encoder_cache"] if main else [])


def test_reset_vllm_encoder_cache_a_server_without_the_endpoint(server: Any) -> None:
    server.status = 404
    with pytest.raises(RuntimeError, match=r"404"):
        on_server(server, True).vllm_generation.sync_weights()


def on_server(server: Any, main: bool) -> Any:
    def post(url: str) -> SimpleNamespace:
        connection = HTTPConnection("127.0.0.1", server.server_port)
        connection.request("POST", url.removeprefix(base))
        return SimpleNamespace(status_code=connection.getresponse().status)

    base = f"http://127.0.0.1:{server.server_port}"
    generation = Generation()
    generation.mode = "server"
    generation.accelerator = SimpleNamespace(is_main_process=main)
    generation.vllm_client = SimpleNamespace(base_url=base, session=SimpleNamespace(post=post))
    trainer = SimpleNamespace(vllm_generation=generation)
    ResetVLLMEncoderCache(trainer).on_train_begin(None, None, None)
    return trainer


@pytest.mark.vllm
def test_reset_vllm_encoder_cache_samples_of_a_trained_projector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the callback, vLLM samples with the projector of the first step."""
    start_engines_quickly(monkeypatch)
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoProcessor
    from trl import GRPOConfig, GRPOTrainer

    keep_cpu_weights()
    folder = save_tiny_ct_chat(tmp_path / "model", hidden_size=64)
    volumes = save_volumes(tmp_path / "volumes", 2)
    rows = [{"prompt": [{"role": "user", "content": WORDS[i % 4]}], "image": volumes[i % 2]} for i in range(16)]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder),
        processing_class=AutoProcessor.from_pretrained(folder),
        reward_funcs=lambda completions, **_: [float(len(one[0]["content"])) for one in completions],
        train_dataset=Dataset.from_list(rows),
        args=GRPOConfig(
            output_dir=str(tmp_path / "run"),
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_max_model_length=64,
            per_device_train_batch_size=8,
            num_generations=8,
            max_completion_length=8,
            learning_rate=5e-3,
            lr_scheduler_type="constant",
            max_steps=4,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
    )

    def differences() -> list[float]:
        trainer.train()
        name = "sampling/sampling_logp_difference/mean"
        found = [entry[name] for entry in trainer.state.log_history if name in entry]
        assert len(found) == 4
        return found

    without = differences()
    trainer.add_callback(ResetVLLMEncoderCache(trainer))
    # The number of steps restarts, and the trainer pushes weights when it changes.
    trainer._last_loaded_step = -1
    reset = differences()
    # Rounding of bfloat16, which vLLM uses here, against features of other weights.
    assert max(without) > 0.5
    assert max(reset) < max(without) / 10
    trainer.vllm_generation.llm.llm_engine.engine_core.shutdown()
