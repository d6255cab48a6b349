"""A language model behind an OpenAI-compatible server: requests, retries, cache and usage."""
