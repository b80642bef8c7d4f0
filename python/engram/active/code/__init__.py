"""Classes of active objects: their schema, their source, and where a program gets them."""
