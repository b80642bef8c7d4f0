"""Where active objects are: backends, moves between them, replicas, and versions beside them."""
