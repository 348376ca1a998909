"""Tables of speed: one script each, and what they share.

Idle threads of PyTorch are put to sleep before it is loaded, as the commands do.
"""

from linattn_runtime_checks.results.environment import calm_threads

calm_threads()
