"""Where an ONNX artifact departs from float64: the first wrong node, or the optimiser at fault."""
