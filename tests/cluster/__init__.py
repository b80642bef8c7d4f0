"""Several nodes on one machine: hosts as namespaces, their faults, and etcd, Dask and MPI on them.

    with Hosts(3) as hosts, Etcd(hosts) as store, DaskCluster(hosts) as dask:
        hosts[1].python("open('/dev/shm/x', 'w').write('only here')")
        hosts.block(hosts[0], hosts[1])
        hosts[2].kill()
        hosts[2].boot()

Needed: root, iproute2, util-linux. Nothing here is of the engine, or knows of it, but for which
etcd may decide.
"""
