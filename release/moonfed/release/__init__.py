"""Releasing models: variants and their gate, model card, bill of materials, signature, model repository."""
