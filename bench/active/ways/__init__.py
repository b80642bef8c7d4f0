"""The ways of reaching objects, a file each; all have the methods of `bench.active.way.Way`."""
