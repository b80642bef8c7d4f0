// The members of a cluster: which hosts hold it, and how they are.

import { ofPool } from "./api";
import { h } from "./dom";
import { records } from "./records";
import { bytes, shown, value } from "./text";

interface ClusterNode {
  id: unknown;
  host: string;
  state: string;
  /** Null of a node that does not answer. */
  free: number | null;
  size: number | null;
  address?: string;
  pool?: string;
  /** When it went away, unless it serves. */
  since?: unknown;
}

export async function nodes(pool: string, signal: AbortSignal): Promise<HTMLElement> {
  const found = await ofPool<{ nodes: ClusterNode[] }>(pool, "nodes", {}, signal);
  return records(
    "Nodes",
    found.nodes,
    [
      { head: "Node", cell: (one) => value(one.id) },
      { head: "Host", cell: (one) => value(one.host) },
      { head: "Pool", cell: (one) => h("bdi", { class: "code" }, shown(one.pool ?? "")) },
      {
        head: "State",
        cell: (one) => h("span", { class: `state ${one.state}` }, value(one.state)),
      },
      { head: "Free", cell: (one) => (one.free === null ? "" : bytes(one.free)), figure: true },
      { head: "Size", cell: (one) => (one.size === null ? "" : bytes(one.size)), figure: true },
      { head: "Away since", cell: (one) => (one.since ? value(one.since) : "") },
    ],
    "This cluster has no nodes.",
  );
}
