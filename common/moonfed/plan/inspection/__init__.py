"""Inspection of plans before they are loaded: archive, code, and operators."""
