"""Errors, groups and options of all programs' command lines."""
