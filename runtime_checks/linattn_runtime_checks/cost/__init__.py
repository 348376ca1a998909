"""How the cost of an artifact grows with the length: certified from its graph, and measured."""
