"""Search of image-free texts that a reward pays, before a policy is trained on it."""
