"""SmolLM2-135M-Instruct as a policy small enough for a CPU."""
