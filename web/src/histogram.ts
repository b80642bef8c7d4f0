// How often values occur, in all of an array or in a part of it.

import uPlot from "uplot";
import { ofPool } from "./api";
import type { Axis } from "./axis";
import * as chart from "./chart";
import { check, choice, h } from "./dom";
import { problem } from "./errors";
import { unitOf } from "./image";
import { type Looking, later, Newest, type View } from "./looking";
import type { Params } from "./route";
import { type Part, parse, slider, write } from "./slices";
import { count, number, shown } from "./text";
import * as theme from "./theme";

interface Histogram {
  edges: number[];
  counts: number[];
  nan: number;
  count: number;
  mean: Loose;
  std: Loose;
  min: Loose;
  max: Loose;
  sampled: boolean;
}
/** A number that JSON may not hold. */
type Loose = number | null | { float: string };

export function histogram(looking: Looking): View {
  const { thing, axes, params, signal } = looking;
  const lengths = thing.shape!;
  const parts = parse(params["index"], lengths).map((part, at): Part => part ?? [0, lengths[at]!]);
  const state: Params = { ...params };
  const host = h("div", { class: "chart" });
  const facts = h("dl", { class: "facts" });
  const trouble = h("div", {});
  const newest = new Newest(signal);
  let plot: uPlot | null = null;
  let drawn: AbortController | null = null;
  const note = (changes: Params) => looking.note(Object.assign(state, changes));
  const index = () => write(parts, lengths);
  const load = async () => {
    const query = {
      path: thing.path,
      index: index(),
      bins: state["bins"] ?? "64",
      decoded: state["decoded"] ?? "1",
    };
    try {
      const found = await newest.run((own) =>
        ofPool<Histogram>(looking.pool, "histogram", query, own),
      );
      drawn?.abort();
      drawn = new AbortController();
      host.replaceChildren();
      const own = AbortSignal.any([signal, drawn.signal]);
      plot = show(host, found, looking, state["log"] === "1", own);
      facts.replaceChildren(...told(found, unitOf(looking)));
      trouble.replaceChildren();
    } catch (error) {
      if (signal.aborted || (error as Error).name === "AbortError") return;
      trouble.replaceChildren(problem(error, () => void load()));
    }
  };
  const soon = later(() => void load(), 60, signal);
  const sliders = h("div", { class: "slices" });
  for (const [at, axis] of axes.entries()) {
    if (typeof parts[at] !== "number") continue;
    const moved = () => {
      note({ index: index() });
      soon();
    };
    sliders.append(slider(axis, at, parts, signal, moved));
  }
  /** Whether all of a dimension is counted, or one place of it. */
  const whole = (axis: Axis, at: number) =>
    check(`All of ${shown(axis.name)}`, typeof parts[at] !== "number", (all) => {
      const asked = parts.map(
        (old, dim): Part => (dim === at ? (all ? [0, lengths[at]!] : 0) : old),
      );
      looking.renew({ ...state, index: write(asked, lengths) });
    });
  const sizes = ["16", "32", "64", "128", "256", "512"].map((size) => [size, size] as const);
  const bar = h(
    "div",
    { class: "controls" },
    choice("Bins", sizes, state["bins"] ?? "64", (bins) => {
      note({ bins });
      void load();
    }),
    check("Logarithmic", state["log"] === "1", (log) => {
      note({ log: log ? "1" : "" });
      void load();
    }),
    ...(axes.length > 1 ? axes.map(whole) : []),
  );
  requestAnimationFrame(() => void load());
  return {
    element: h("div", { class: "view" }, bar, sliders, host, facts, trouble),
    refresh: soon,
    picture: async () => (plot ? chart.picture(plot, `${shown(thing.path)} [${index()}]`) : null),
    index,
  };
}

function show(
  host: HTMLElement,
  found: Histogram,
  looking: Looking,
  log: boolean,
  signal: AbortSignal,
): uPlot {
  const { edges, counts } = found;
  const unit = unitOf(looking);
  const name = shown(looking.thing.name);
  const bars = uPlot.paths.bars!({ size: [1, Number.POSITIVE_INFINITY], align: 1, gap: 1 });
  const heights = log ? counts.map((many) => (many > 0 ? many : null)) : counts;
  const ends: [number, number] = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", `Histogram of ${name}; its figures follow.`);
  return chart.draw(
    host,
    {
      scales: {
        x: { time: false, range: ends },
        y: log ? { distr: 3 } : { range: (_, __, high) => [0, Math.max(1, high * 1.05)] },
      },
      axes: [chart.axis(unit ? `${name} (${unit})` : name), chart.axis("Elements", { size: 64 })],
      series: [
        { label: "from", value: (_, at) => (at == null ? "—" : number(at)) },
        {
          label: "elements",
          stroke: () => theme.colour("data"),
          fill: () => theme.colour("data"),
          width: 0,
          paths: bars,
          points: { show: false },
          value: (_, at) => (at == null ? "—" : count(at)),
        },
      ],
      cursor: { drag: { x: false, y: false } },
    },
    [[...edges.slice(0, counts.length)], heights],
    340,
    signal,
  );
}

function told(found: Histogram, unit: string): HTMLElement[] {
  const loose = (value: Loose) => {
    if (value === null) return "—";
    if (typeof value === "object") return value.float;
    return `${number(value)}${unit ? ` ${unit}` : ""}`;
  };
  const pairs: [string, string][] = [
    [found.sampled ? "Elements (a sample)" : "Elements", count(found.count)],
    ["Not a number", count(found.nan)],
    ["Least", loose(found.min)],
    ["Largest", loose(found.max)],
    ["Mean", loose(found.mean)],
    ["Standard deviation", loose(found.std)],
  ];
  return pairs.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value)));
}
