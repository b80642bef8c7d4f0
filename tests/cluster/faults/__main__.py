"""The campaign: `python -m cluster.faults [--seed N] [--rounds N] [FAULT...]`."""

from __future__ import annotations

import argparse
import random

from cluster import hosts
from cluster.faults import faults
from cluster.faults.campaign import Campaign


def main() -> None:
    """Run rounds of all faults, each round in an order of its own and on hosts of its own."""
    names = {fault.__name__: fault for fault in faults.ALL}
    parser = argparse.ArgumentParser(prog="cluster.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("faults", nargs="*", choices=[[], *names], metavar="FAULT")
    given = parser.parse_args()
    if why := hosts.why_not("etcd", "etcdctl"):
        raise SystemExit(f"this needs hosts: {why}")
    for seed in range(given.seed, given.seed + given.rounds):
        print(f"seed {seed}", flush=True)  # noqa: T201 - how far it is
        chosen = [names[name] for name in given.faults] or list(names.values())
        with Campaign(seed) as campaign:
            if not given.faults:
                campaign.draw.shuffle(chosen)
            campaign.run(chosen)


if __name__ == "__main__":
    main()
