"""Robust."""
