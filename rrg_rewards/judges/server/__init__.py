"""A language model behind an OpenAI-compatible server: requests, retries, rate limits, cache and usage."""
