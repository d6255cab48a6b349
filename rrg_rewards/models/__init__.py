"""Neural networks in Hugging Face form."""
