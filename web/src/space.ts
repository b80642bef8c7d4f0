// Space: how much is used, by what, and who holds some of it; live.

import type uPlot from "uplot";
import { ofPool } from "./api";
import * as chart from "./chart";
import { h, s } from "./dom";
import * as events from "./events";
import { later } from "./looking";
import { records } from "./records";
import { bytes, count, shown, value } from "./text";
import * as theme from "./theme";

interface Holder {
  pid: number;
  user: unknown;
  host?: string;
  program?: string;
  since?: unknown;
  views: number;
  leases: number;
  alive: boolean;
  /** Whether it is this server. */
  own?: boolean;
}
interface Spaces {
  size: number;
  used: number;
  free: number;
  kinds: { [kind: string]: unknown };
  holders: Holder[];
  deleted?: { viewed: number; reclaimable: number };
  commits?: number;
  /** The namespaces, with their bounds. */
  quotas: { namespace: string; owner: unknown; mode: string; size?: number; used?: number }[];
  devices?: { path: string; filesystem: string; medium: string; durable: boolean; free: number }[];
}

const KINDS: { [kind: string]: string } = {
  used: "Used",
  pending: "Reserved, not committed",
  free: "Free in the arena",
  vacant: "Never used",
  arena: "Arena",
  largest_free: "Largest free piece",
  catalog: "Catalog",
};
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const KEPT = 600;
/** What was used at which time, since the page was opened; of each pool. */
const courses = new Map<string, { times: number[]; used: number[] }>();

function course(pool: string): { times: number[]; used: number[] } {
  const found = courses.get(pool) ?? { times: [], used: [] };
  courses.set(pool, found);
  return found;
}

export function record(told: events.Space): void {
  const { times, used } = course(told.pool);
  times.push(Date.now() / 1000);
  used.push(told.used);
  if (times.length > KEPT) {
    times.shift();
    used.shift();
  }
}

export async function space(pool: string, signal: AbortSignal): Promise<HTMLElement> {
  const head = h("div", {});
  const rest = h("div", {});
  const plotted = h("div", {
    class: "chart",
    role: "img",
    "aria-label": "Space used since this page was opened",
  });
  const load = async () => {
    const found = await ofPool<Spaces>(pool, "space", {}, signal);
    head.replaceChildren(...used(found));
    rest.replaceChildren(...holders(found));
  };
  await load();
  const again = later(() => void load().catch(console.warn), 300, signal);
  let plot: uPlot | null = null;
  events.on(
    "space",
    (told) => {
      if (told.pool !== pool) return;
      const { times, used: many } = course(pool);
      plot?.setData([times, many]);
      again();
    },
    signal,
  );
  events.on("again", again, signal);
  // Views and leases change without commits, and so without events.
  const timer = window.setInterval(again, 3000);
  signal.addEventListener("abort", () => window.clearInterval(timer));
  queueMicrotask(() => {
    plot = draw(plotted, pool, signal);
  });
  return h("div", {}, head, h("h2", {}, "Since this page was opened"), plotted, rest);
}

function draw(host: HTMLElement, pool: string, signal: AbortSignal): uPlot {
  const { times, used: many } = course(pool);
  return chart.draw(
    host,
    {
      scales: {
        x: { time: true, range: () => span(times) },
        y: { range: (_, low, high) => [Math.min(low ?? 0, 0), Math.max(1, (high ?? 1) * 1.1)] },
      },
      legend: { show: false },
      axes: [
        chart.timeAxis("Time"),
        chart.axis("Used", {
          size: 72,
          incrs: POWERS,
          values: (_, splits) => splits.map((at) => bytes(at)),
        }),
      ],
      series: [
        {},
        { stroke: () => theme.colour("data"), fill: () => theme.colour("data-soft"), width: 1.5 },
      ],
      cursor: { drag: { x: false, y: false } },
    },
    [times, many],
    180,
    signal,
  );
}

/** A minute at least, up to the last time. */
function span(times: readonly number[]): [number, number] {
  const last = times.at(-1) ?? Date.now() / 1000;
  return [Math.min(times[0] ?? last, last - 60), last];
}

function used(found: Spaces): HTMLElement[] {
  const part = found.size > 0 ? found.used / found.size : 0;
  const percent = Math.round(part * 100);
  const kinds: [string, string][] = Object.entries(found.kinds).map(([kind, many]) => [
    KINDS[kind] ?? kind.replaceAll("_", " "),
    typeof many === "number" ? bytes(many) : value(many),
  ]);
  if (found.deleted) {
    kinds.push(["Deleted, still viewed", bytes(found.deleted.viewed)]);
    kinds.push(["Deleted, to be reclaimed", bytes(found.deleted.reclaimable)]);
  }
  if (found.commits !== undefined) kinds.push(["Commits", count(found.commits)]);
  const full = part > 0.95 ? "full" : part > 0.8 ? "near" : "";
  return [
    h(
      "p",
      { class: "lead" },
      h("strong", {}, bytes(found.used)),
      ` of ${bytes(found.size)} are used (${percent} %); ${bytes(found.free)} are free.`,
    ),
    h(
      "div",
      { class: "meter" },
      s(
        "svg",
        {
          class: `share wide ${full}`,
          viewBox: "0 0 1000 16",
          preserveAspectRatio: "none",
          "aria-hidden": "true",
        },
        s("rect", { class: "ground", width: 1000, height: 16 }),
        s("rect", { width: Math.max(2, 1000 * Math.min(1, part)), height: 16 }),
      ),
    ),
    full === "full"
      ? h(
          "p",
          { class: "problem" },
          "The pool is nearly full: remove what is not needed, or make it larger with engram grow.",
        )
      : h("span", {}),
    h(
      "dl",
      { class: "facts" },
      ...kinds.map(([term, text]) => h("div", {}, h("dt", {}, shown(term)), h("dd", {}, text))),
    ),
  ];
}

function holders(found: Spaces): HTMLElement[] {
  const user = (one: { owner: unknown }) => value(one.owner);
  const size = (many: number | undefined) => (many === undefined ? "" : bytes(many));
  return [
    h("h2", {}, "Who holds what"),
    records(
      "Holders",
      found.holders,
      [
        { head: "Process", cell: (one) => String(one.pid), figure: true },
        { head: "Program", cell: (one) => shown(one.own ? "this server" : (one.program ?? "")) },
        { head: "User", cell: (one) => value(one.user) },
        { head: "Since", cell: (one) => (one.since ? value(one.since) : "") },
        { head: "Views", cell: (one) => count(one.views), figure: true },
        { head: "Leases", cell: (one) => bytes(one.leases), figure: true },
        { head: "State", cell: (one) => state(one.alive) },
      ],
      "No process holds views or leases.",
    ),
    h("h2", {}, "Namespaces"),
    records(
      "Namespaces",
      found.quotas,
      [
        { head: "Namespace", cell: (one) => shown(one.namespace) },
        { head: "Owner", cell: user },
        { head: "Mode", cell: (one) => one.mode },
        { head: "Used", cell: (one) => size(one.used), figure: true },
        { head: "Of at most", cell: (one) => size(one.size), figure: true },
      ],
      "None is known to you.",
    ),
    h("h2", {}, "Devices"),
    records(
      "Devices",
      found.devices ?? [],
      [
        { head: "Folder", cell: (one) => h("bdi", { class: "code" }, shown(one.path)) },
        { head: "Filesystem", cell: (one) => shown(one.filesystem) },
        { head: "Medium", cell: (one) => shown(one.medium) },
        { head: "Survives power cuts", cell: (one) => (one.durable ? "yes" : "no") },
        { head: "Free on it", cell: (one) => bytes(one.free), figure: true },
      ],
      "None is known.",
    ),
  ];
}

function state(alive: boolean): HTMLElement {
  return h("span", { class: `state ${alive ? "up" : "down"}` }, alive ? "alive" : "ended");
}
