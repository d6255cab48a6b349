"""Read findings from report text: layout, sentences, tokens, phrases, negation, modifiers and merged mentions."""
