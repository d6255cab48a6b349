"""Tasks of language models as judges: the prompt, the form of the answer, and its checks."""
