"""Subjects: a model with a method and its weights, from which all its artifacts are made."""
