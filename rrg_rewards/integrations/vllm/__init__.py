"""CT-CHAT in vLLM, which finds it by the entry point ``vllm.general_plugins``."""
