"""The entry point by which vLLM finds CT-CHAT, with and without vLLM."""

import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec

import pytest


def test_vllm_finds_the_plugin() -> None:
    found = [point for point in entry_points(group="vllm.general_plugins") if point.value.startswith("rrg_rewards.")]
    assert [point.name for point in found] == ["rrg_rewards"]
    register = found[0].load()
    if find_spec("vllm") is None:
        with pytest.raises(ModuleNotFoundError, match=r"run: python -m pip install .*\[vllm\]"):
            register()


def test_vllm_plugin_imports_no_framework() -> None:
    code = (
        "import sys, rrg_rewards, rrg_rewards.integrations.vllm.plugin; "
        "print(sorted({'vllm', 'transformers', 'torch'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.vllm
def test_vllm_plugin_can_be_registered_again() -> None:
    vllm = pytest.importorskip("vllm", reason="vLLM has an environment of its own")
    from rrg_rewards.integrations.vllm.plugin import register

    register()
    register()
    assert "CTChatForConditionalGeneration" in vllm.ModelRegistry.get_supported_archs()
