"""Which release of ONNX Runtime loads which opset and IR version."""

# The smallest ONNX Runtime release (CPU wheel) that loads an opset, and an IR version, of 1.15 and
# later: each wheel was installed and given files of every opset that a build writes.
_SINCE_OPSET = {17: "1.15", 18: "1.15", 19: "1.16", 20: "1.17", 21: "1.18", 22: "1.21", 23: "1.23"}
_SINCE_IR = {8: "1.15", 9: "1.16", 10: "1.18", 11: "1.23", 13: "1.25"}

# What is written loads from ONNX Runtime 1.15 on; the exporter would write 10, which 1.17 refuses.
IR_VERSION = 8
# From opset 21 on the standard wants a newer IR.
IR_OF_OPSET = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}


def smallest_onnxruntime(opset: int, ir_version: int) -> str:
    """The oldest ONNX Runtime that was seen to load such a file, of 1.15 and later."""
    opset_release = _SINCE_OPSET.get(opset, "1.15" if opset < 17 else "1.32")
    ir_release = _SINCE_IR.get(ir_version, "1.15" if ir_version < 8 else "1.32")
    return later(opset_release, ir_release)


def later(*releases: str) -> str:
    """The last of several releases."""
    return max(releases, key=lambda release: tuple(map(int, release.split("."))))
