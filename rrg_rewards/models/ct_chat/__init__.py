"""CT-CHAT as a Hugging Face model: a language model with a projector for CT-ViT tokens."""
