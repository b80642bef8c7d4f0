"""Clusters beside what they are made of: loops over sockets, etcd, a pool of one node, Dask."""
