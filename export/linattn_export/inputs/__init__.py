"""The inputs that artifacts are judged on: families, cases, and how they are drawn."""
