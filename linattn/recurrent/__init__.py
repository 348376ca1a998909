"""The recurrence that causal and recurrent linear attention share, executed in three ways."""

from linattn.recurrent.chunk import chunked
from linattn.recurrent.oracle import recurrent_oracle
from linattn.recurrent.run import recurrence
from linattn.recurrent.step import step

__all__ = ["chunked", "recurrence", "recurrent_oracle", "step"]
