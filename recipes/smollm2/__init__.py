"""Recipe that trains SmolLM2-135M-Instruct on a CPU."""
