"""The golden pack: inputs, float64 outputs, and what rounding costs on each."""
