"""Pure: which devices a deployment chooses, what each of them is to answer with, and how deployments change."""
