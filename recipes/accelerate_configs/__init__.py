"""Configurations of ``accelerate launch``: data parallel, DeepSpeed ZeRO-2 and ZeRO-3."""
