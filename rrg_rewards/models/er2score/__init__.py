"""ER²Score: a causal decoder with one reward head per criterion."""
