"""`Annotated[np.ndarray, InNVM()]`: arrays are in the pool's memory anyhow."""

from engram.compat.dataclay.annotated import PropertyTransformer


class InNVM(PropertyTransformer):
    """Says that an array belongs into non-volatile memory, which is where a pool has it."""
