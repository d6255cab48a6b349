"""Decoding in graphs: the completions of eager decoding. Most steps are not compiled here, which takes long."""

import copy
import logging

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from tiny_ct_chat import save_volumes, tiny_ct_chat, tiny_processor
from tiny_generator import PlainSteps, tiny_generator, tiny_rows, train, weights, word_value
from tiny_policy import sliding_model, tiny_model, tiny_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from rrg_rewards.training import CausalLMGenerator, CTChatGenerator
from rrg_rewards.training.policy import graphs
from rrg_rewards.training.policy.adapters import adapted_layers
from rrg_rewards.training.policy.generators import repeat_rows
from rrg_rewards.training.policy.graphs import GraphDecoder, reason_against_graphs
from rrg_rewards.utilities.settings import SettingError


@pytest.fixture
def plain(monkeypatch):
    """Leave steps uncompiled."""
    monkeypatch.setattr(graphs, "compiled", lambda step, device: step)


def _text(model=None):
    model = tiny_model() if model is None else model
    # Otherwise, the tokens do not depend on the prompt.
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.3)
    generator = CausalLMGenerator(model, tiny_tokenizer(), max_new_tokens=12, temperature=2.0, merge_adapters=True)
    return generator.eval(), generator.collate(tiny_rows(5))


def _grouped_heads():
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=14, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, initializer_range=0.3,
        )
    )  # fmt: skip


def _adapted():
    torch.manual_seed(0)
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return get_peft_model(tiny_model(), lora)


def _ct_chat(folder):
    processor = tiny_processor()
    generator = CTChatGenerator(tiny_ct_chat(processor), processor, max_new_tokens=6, merge_adapters=True)
    contents = ["report", "report", "report report report"]
    rows = [
        {"prompt": [{"role": "user", "content": content}], "image": path}
        for content, path in zip(contents, save_volumes(folder, 3), strict=True)
    ]
    return generator.eval(), generator.collate(rows)


def _sampled(generator, rows, decoding, greedy=False):
    generator.decoding = decoding
    torch.manual_seed(3)
    return generator.sample(rows, greedy=greedy)


def _check_equal(generator, rows, greedy=False):
    expected, found = (_sampled(generator, rows, decoding, greedy) for decoding in ("eager", "graph"))
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.mask, expected.mask)
    assert torch.equal(found.finished, expected.finished)
    if not greedy:
        torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-5, rtol=0)
    else:
        # No random number is drawn.
        assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(3).get_state())
    return found


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("kind", ["text", "grouped heads", "unpadded", "merged", "unmerged", "ct_chat"])
def test_graph_decoding_gives_the_completions_of_eager_decoding(kind, greedy, tmp_path):
    if kind == "ct_chat":
        generator, batch = _ct_chat(tmp_path)
    else:
        model = {"grouped heads": _grouped_heads, "merged": _adapted, "unmerged": _adapted}.get(kind, tiny_model)()
        generator, batch = _text(model)
    if kind == "unpadded":
        batch = generator.collate([tiny_rows()[0]] * 3)
    if kind == "unmerged":
        # Without the log-probabilities of the sampler.
        generator.merge_adapters = False
        rows = repeat_rows(batch, 7)
        expected, found = (_sampled(generator, rows, decoding, greedy) for decoding in ("eager", "graph"))
        assert torch.equal(found.tokens, expected.tokens)
        return
    found = _check_equal(generator, repeat_rows(batch, 7), greedy)
    if not greedy and kind != "ct_chat":
        # Rows have ended at several times, and left the batch.
        assert len(set(found.length_list)) > 3


@pytest.mark.usefixtures("plain")
def test_graph_decoding_keeps_its_graphs_and_follows_the_weights(monkeypatch):
    generator, batch = _text(_adapted())
    generator.merge_adapters = False
    made = []
    monkeypatch.setattr(
        GraphDecoder, "_make_step", lambda *args, of=GraphDecoder._make_step: made.append(1) or of(*args)
    )
    monkeypatch.setattr(GraphDecoder, "_fits", lambda _: True)

    def check(rows):
        expected, found = (_sampled(generator, rows, decoding) for decoding in ("eager", "graph"))
        assert torch.equal(found.tokens, expected.tokens)

    check(repeat_rows(batch, 4))
    first = len(made)
    assert first > 1
    with torch.no_grad():
        for weight in generator.parameters():
            weight.mul_(1.1)
    # Fewer rows, with rows of a step left over, and another temperature.
    check(repeat_rows(batch, 3))
    generator.temperature = 1.5
    check(repeat_rows(batch, 1).take(torch.tensor([2])))
    assert len(made) == first
    # Numbers that a CUDA graph holds as constants.
    for layer in adapted_layers(generator.model).values():
        layer.set_scale("default", 3.0)
    check(repeat_rows(batch, 3))
    assert len(made) > first


@pytest.mark.usefixtures("plain")
def test_graph_decoding_one_token_and_more_rows_than_before():
    generator, batch = _text()
    generator.max_new_tokens = 1
    _check_equal(generator, repeat_rows(batch, 1))
    generator.max_new_tokens = 60
    _check_equal(generator, repeat_rows(batch, 2))
    generator.end_token_ids = [2, 4, 5]
    _check_equal(generator, repeat_rows(batch, 3))


def _trained(algorithm, decoding, steps, **options):
    torch.manual_seed(0)
    generator = tiny_generator(5)
    generator.decoding = decoding
    settings = {"num_generations": 4, "minibatches": 2, "beta": 0.05, "learning_rate": 0.1}
    module = PlainSteps(generator, word_value, algorithm=algorithm, **settings)
    return module, train(module, steps, **options)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    "algorithm", ["grpo", "scst", "ppo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dr_grpo", "rloo"))]
)
def test_graph_decoding_a_run_is_that_of_eager_decoding_and_is_resumed(algorithm, tmp_path):
    checkpoints = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    (eager, expected), (graph, found) = (
        _trained(algorithm, "eager", 6),
        _trained(algorithm, "graph", 6, callbacks=[checkpoints], enable_checkpointing=True),
    )
    assert graph.generator._decoder is not None
    torch.testing.assert_close(weights(graph), weights(eager), rtol=0, atol=1e-6)
    assert not torch.equal(weights(graph.generator), weights(tiny_generator()))
    for own, other in zip(found.rows, expected.rows, strict=True):
        assert own == pytest.approx(other, rel=1e-4, abs=1e-5)
    # From the middle of a rollout.
    resumed, history = _trained(algorithm, "graph", 6, ckpt_path=str(tmp_path / "step=3.ckpt"))
    assert len(history.rows) == 3
    assert torch.equal(weights(resumed), weights(graph))


@pytest.mark.slow
def test_graph_decoding_compiled_steps_give_the_completions_of_eager_decoding():
    generator, batch = _text(_adapted())
    _check_equal(generator, repeat_rows(batch, 3))


def _prompt_tuning():
    return get_peft_model(tiny_model(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))


def _changed(change):
    model = tiny_model()
    change(model)
    return lambda: model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (sliding_model, "sliding windows"),
        (_prompt_tuning, "trained prompts"),
        (_changed(lambda model: model.set_attn_implementation("eager")), "attention is eager"),
        (_changed(lambda model: setattr(model, "_can_compile_fullgraph", False)), "does not compile"),
        (_changed(lambda model: model.config.rope_parameters.update(rope_type="dynamic")), "encoded by dynamic"),
        (_changed(lambda model: setattr(model.lm_head.weight, "ds_id", 0)), "sharded"),
    ],
)
def test_graph_decoding_models_without_graphs_stay_eager(make, reason, caplog):
    generator = CausalLMGenerator(make().eval(), tiny_tokenizer(), max_new_tokens=3, decoding="auto")
    rows = generator.collate(tiny_rows(2))
    with caplog.at_level(logging.INFO):
        generator.sample(rows)
        generator.sample(rows)
    (record,) = [record for record in caplog.records if "decoding" in record.message]
    assert "eager, because" in record.message
    assert reason in record.message
    again = CausalLMGenerator(generator.model, tiny_tokenizer(), decoding="graph")
    with pytest.raises(SettingError, match=reason) as raised:
        again.sample(rows)
    assert raised.value.setting == "decoding"


def test_graph_decoding_a_failed_graph_is_an_error_unless_the_choice_is_automatic(monkeypatch, caplog):
    def failed(*_, **__):
        raise RuntimeError("no compiler\nand more")

    generator, batch = _text()
    monkeypatch.setattr(GraphDecoder, "sample", failed)
    generator.decoding = "graph"
    with pytest.raises(RuntimeError, match="no compiler"):
        generator.sample(batch)
    generator.decoding = "auto"
    expected = _sampled(generator, batch, "eager", greedy=True)
    generator._decoder, generator.decoding = GraphDecoder(generator.model), "auto"
    assert generator.sample(batch, greedy=True).token_lists() == expected.token_lists()
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "decoding is eager from now on, because a graph failed: no compiler"
    ]
    assert generator._decoder is None


@pytest.mark.usefixtures("plain")
def test_graph_decoding_generators_are_copied_without_graphs():
    generator, batch = _text()
    generator.decoding = "graph"
    generator.sample(batch)
    copied = copy.deepcopy(generator)
    assert generator._decoder is not None
    assert copied._decoder is None
    assert _sampled(copied, batch, "graph", True).token_lists() == generator.sample(batch, greedy=True).token_lists()


def test_graph_decoding_an_unknown_choice_is_an_error():
    with pytest.raises(SettingError, match="compiled") as raised:
        CausalLMGenerator(tiny_model(), tiny_tokenizer(), decoding="compiled")
    assert raised.value.setting == "decoding"
    assert reason_against_graphs(tiny_generator().model) is None


@pytest.mark.usefixtures("plain")
def test_graph_decoding_buffers_serve_after_validation_and_after_nan(monkeypatch):
    monkeypatch.setattr(GraphDecoder, "_fits", lambda _: True)
    generator, batch = _text()
    rows = repeat_rows(batch, 2)
    with torch.inference_mode():
        _check_equal(generator, rows, greedy=True)
    generator.max_new_tokens = 3
    (layer, *_) = next(iter(generator._decoder._states.values())).cache.layers
    layer.values.fill_(torch.nan)
    _check_equal(generator, rows, greedy=True)
    assert generator.sample(rows).log_probs.isfinite().all()
