"""SPECs of the modules in own_nets."""

from typing import Any

SPEC: dict[str, Any] = {
    "symbols": {"batch": "1:8", "sequence": "1:60"},
    "inputs": {"x": {"shape": ["batch", "sequence", 8]}},
}


PAIR: dict[str, Any] = {
    "symbols": {"batch": "1:4", "sequence": "1:20"},
    "inputs": {
        "pair": {
            "left": {"shape": ["batch", "sequence", 8]},
            "right": {"shape": ["batch", "sequence"], "dtype": "int32", "range": [3, 9]},
        },
        "scale": {"shape": [8]},
    },
}


TOKENS: dict[str, Any] = {
    "symbols": {"batch": "1:6", "sequence": "1:70"},
    "inputs": {
        "tokens": {"dtype": "int64", "shape": ["batch", "sequence"], "range": [0, 31]},
        "attention_mask": {"kind": "mask", "shape": ["batch", "sequence"]},
    },
    "promises": {"cost": "linear"},
}
