"""Faults on hosts: a cluster at work while its hosts fail, and whether it keeps its promises.

`work` is what runs on the hosts and writes down what it does, `histories` reads that, `faults` are
what happens meanwhile, `checker` looks at the histories, and `campaign` runs all of it.
"""
