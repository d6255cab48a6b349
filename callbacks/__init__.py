"""Lightning callbacks."""

if __name__ != "rrg_rewards.callbacks":
    raise ImportError(f"import this package as rrg_rewards.callbacks, not as {__name__}")
