"""Configurations of ``accelerate launch``: data parallelism, DeepSpeed ZeRO-2 and ZeRO-3."""
