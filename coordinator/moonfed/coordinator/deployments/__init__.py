"""Pure: which devices a deployment chooses, what each of them is to predict with, and how deployments change."""
