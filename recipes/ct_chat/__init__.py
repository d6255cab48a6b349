"""CT-CHAT: supervised warm start and reinforcement learning, for the real model and for a small one on phantoms."""
