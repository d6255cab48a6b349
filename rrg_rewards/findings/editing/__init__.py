"""Reports edited by rule: injected errors, wrong details and paraphrases."""
