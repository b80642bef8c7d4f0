"""Methods in other processes of the node: the executor, its workers, and what they are told."""
