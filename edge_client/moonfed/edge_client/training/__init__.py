"""Local training on the plan interface: batches, randomness, budgets, CUDA graphs."""
