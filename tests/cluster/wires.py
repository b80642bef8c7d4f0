"""Networks of hosts: a bridge in the machine's own network, a wire from it to each host.

A machine of the network is known by its number: hosts count from 1, and `HERE` is the bridge's own
address, by which the test's process takes part.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

from cluster.claims import wait_for
from native import PATH

NETWORK = "198.18"
"""Of the range for benchmarks (RFC 2544), which no network of the world has."""
BRIDGE = "engram-b"
WIRE = "engram-"
HERE = 254
NOWHERE = "02:00:00:00:00:00"
"""A hardware address that no machine has: what is sent to it is lost on the way."""


def ip(*lines: str, pid: int | None = None) -> None:
    """Run lines of `ip`, all or up to the first that fails, in the network of a process."""
    _run(["ip", "-batch", "-"], "\n".join(lines), pid)


def ip_if_any(*words: str) -> bool:
    """Run one line of `ip` that may find nothing to do; whether it did it."""
    done = subprocess.run(["ip", *words], capture_output=True, check=False, env={"PATH": PATH})
    return done.returncode == 0


def shown(*words: str, pid: int | None = None) -> list[dict[str, Any]]:
    """Return what a command of `ip` shows."""
    found: list[dict[str, Any]] = json.loads(_run(["ip", "-json", *words], "", pid) or "[]")
    return found


def _run(command: list[str], given: str, pid: int | None) -> str:
    inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "--"] if pid else []
    done = subprocess.run(
        [*inside, *command],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": PATH},
    )
    if done.returncode != 0:
        raise OSError(f"{' '.join([*inside, *command])}: {done.stderr.strip()}\n{given}".strip())
    return done.stdout


def is_free(number: int) -> bool:
    """Whether nothing but a rig's own bridge has an address in the network of this number."""
    start = f"{NETWORK}.{number}."
    return not any(
        link["ifname"] != f"{BRIDGE}{number}" and each.get("local", "").startswith(start)
        for link in shown("address", "show")
        for each in link.get("addr_info", ())
    )


def remove(number: int) -> None:
    """Remove all wires of a network, and its bridge."""
    for name in links(number):
        ip_if_any("link", "delete", name)
    wait_for("the links are gone", lambda: not links(number))


def links(number: int) -> list[str]:
    """Return the interfaces of a network that the machine itself has."""
    names = [str(link["ifname"]) for link in shown("link", "show")]
    mine = (f"{BRIDGE}{number}", f"{WIRE}{number}-")
    return [name for name in names if name == mine[0] or name.startswith(mine[1])]


class Network:
    """The bridge, and what is done to its wires; it remembers nothing."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.bridge = f"{BRIDGE}{number}"

    def lay_bridge(self) -> None:
        """Make the bridge, with the machine's own address."""
        ip(
            f"link add {self.bridge} address {self.hardware(HERE)} type bridge",
            f"address add {self.address(HERE)}/24 dev {self.bridge}",
            f"link set {self.bridge} up",
        )

    def address(self, machine: int) -> str:
        """Return the address of a machine."""
        return f"{NETWORK}.{self.number}.{machine}"

    def hardware(self, machine: int) -> str:
        """Return the hardware address of a machine, which is the same after each boot."""
        return f"02:e6:00:00:{self.number:02x}:{machine:02x}"

    def wire(self, machine: int) -> str:
        """Return the name of the bridge's end of a wire."""
        return f"{WIRE}{self.number}-{machine}"

    def lay_wire(self, machine: int, pid: int) -> None:
        """Lay a wire from the bridge to a host, whose holder this process is."""
        wire, hardware = self.wire(machine), self.hardware(machine)
        ip(
            f"link add {wire} type veth peer name eth0 address {hardware} netns {pid}",
            f"link set {wire} master {self.bridge} up",
        )
        ip(
            "link set lo up",
            f"address add {self.address(machine)}/24 dev eth0",
            "link set eth0 up",
            pid=pid,
        )

    def remove_wire(self, machine: int) -> None:
        """Remove a wire, both of its ends."""
        ip_if_any("link", "delete", self.wire(machine))

    def wait_for_wire(self, machine: int, pid: int) -> None:
        """Wait until both ends of a wire carry packets: the kernel says so a little later."""
        wait_for(
            f"{self.wire(machine)} up",
            lambda: (
                shown("link", "show", "dev", self.wire(machine))[0]["operstate"] == "UP"
                and shown("link", "show", "dev", "eth0", pid=pid)[0]["operstate"] == "UP"
            ),
        )

    def plug(self, machine: int) -> None:
        """Put a wire back into the bridge."""
        ip(f"link set {self.wire(machine)} up")

    def unplug(self, machine: int) -> None:
        """Pull a wire out of the bridge: nothing passes it, and neither end hears why."""
        ip(f"link set {self.wire(machine)} down")

    def lose(self, machine: int, pid: int | None) -> None:
        """Have a process's machine lose all that it sends to another."""
        self._neighbour(f"replace {{}} lladdr {NOWHERE} nud permanent", machine, pid)

    def lose_no_more(self, machine: int, pid: int | None) -> None:
        """Have it find the other machine again."""
        self._neighbour("delete {}", machine, pid)

    def _neighbour(self, words: str, machine: int, pid: int | None) -> None:
        device = "eth0" if pid else self.bridge
        ip(f"neighbour {words.format(self.address(machine))} dev {device}", pid=pid)

    def slow(self, machine: int, pid: int, rate: str, burst: str) -> None:
        """Have a wire carry so much in each direction, and hold back up to half a second of it."""
        words = f"root tbf rate {rate} burst {burst} latency 500ms".split()
        _run(["tc", "qdisc", "replace", "dev", self.wire(machine), *words], "", None)
        _run(["tc", "qdisc", "replace", "dev", "eth0", *words], "", pid)

    def slow_no_more(self, machine: int, pid: int) -> None:
        """Have a wire carry what the kernel can."""
        _run(["tc", "qdisc", "delete", "dev", self.wire(machine), "root"], "", None)
        _run(["tc", "qdisc", "delete", "dev", "eth0", "root"], "", pid)
