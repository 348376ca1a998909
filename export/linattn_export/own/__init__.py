"""A module of one's own: what it is fed, how it is called, and why it cannot be captured."""
