"""A live PyTorch module: what it is, keeps and does when it runs, and why it cannot be captured."""
