"""Capture: a module as one program with symbolic sizes, and what that takes for granted."""
