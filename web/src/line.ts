// One dimension of an array as a line. What has more elements than the screen has columns is shown
// as the mean of each column's, with a band from the least to the largest of them.

import uPlot from "uplot";
import { type Numbers, numbers } from "./api";
import type { Axis } from "./axis";
import * as chart from "./chart";
import { button, h } from "./dom";
import { problem } from "./errors";
import { unitOf } from "./image";
import { type Looking, later, Newest, type View } from "./looking";
import type { Params } from "./route";
import { choose, control, type Part, write } from "./slices";
import { count, number, shown } from "./text";
import * as theme from "./theme";

const MOST = 8192;
const HEIGHT = 380;

export function line(looking: Looking): View {
  const { thing, axes, params, signal } = looking;
  const lengths = thing.shape!;
  const parts = choose(params["index"], lengths, 1);
  const free = parts.findIndex(Array.isArray);
  const axis = axes[free]!;
  const name = shown(thing.name);
  const state: Params = { ...params };
  let [from, to] = parts[free] as [number, number];
  const host = h("div", { class: "chart" });
  const trouble = h("div", {});
  const newest = new Newest(signal);
  let plot: uPlot | null = null;
  let drawn: AbortController | null = null;
  const note = (changes: Params) => looking.note(Object.assign(state, changes));
  const index = () => {
    const asked: Part[] = [...slices.parts];
    asked[free] = [from, to];
    return write(asked, lengths);
  };
  const load = async () => {
    const bins = Math.min(MOST, Math.max(64, Math.ceil(host.clientWidth * devicePixelRatio)));
    const query = { path: thing.path, index: index(), bins, decoded: state["decoded"] ?? "1" };
    try {
      const found = await newest.run((own) => numbers(looking.pool, "line", query, own));
      drawn?.abort();
      drawn = new AbortController();
      const own = AbortSignal.any([signal, drawn.signal]);
      host.replaceChildren();
      plot = show(host, courseOf(found), axis, name, unitOf(looking), own, range);
      trouble.replaceChildren();
    } catch (error) {
      if (signal.aborted || (error as Error).name === "AbortError") return;
      trouble.replaceChildren(problem(error, () => void load()));
    }
  };
  const soon = later(() => void load(), 60, signal);
  /** Shows from one place to another; what is too small to tell from a click is left. */
  const range = (low: number, high: number) => {
    const least = Math.min(axis.length, 4);
    let first = Math.max(0, Math.floor(Math.min(low, high)));
    const last = Math.min(axis.length, Math.max(Math.ceil(Math.max(low, high)), first + least));
    first = Math.max(0, Math.min(first, last - least));
    if (first === from && last === to) return;
    [from, to] = [first, last];
    note({ index: index() });
    soon();
  };
  const zoom = (factor: number) => {
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
    range(middle - half, middle + half);
  };
  const pan = (part: number) => {
    const by = Math.round((to - from) * part);
    const bound = Math.max(-from, Math.min(axis.length - to, by));
    range(from + bound, to + bound);
  };
  const slices = control(
    axes,
    parts,
    signal,
    () => {
      note({ index: index() });
      soon();
    },
    ([at]) => {
      const asked = lengths.map((length, dim): Part => {
        const part = slices.parts[dim];
        return dim === at ? [0, length] : typeof part === "number" ? part : 0;
      });
      looking.renew({ ...state, index: write(asked, lengths) });
    },
  );
  const keys: { [key: string]: () => void } = {
    ArrowLeft: () => pan(-0.2),
    ArrowRight: () => pan(0.2),
    "+": () => zoom(0.6),
    "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6),
    "0": () => range(0, axis.length),
  };
  host.tabIndex = 0;
  host.setAttribute("role", "img");
  host.setAttribute(
    "aria-label",
    `${shown(thing.name)} along ${shown(axis.name)}. Arrow keys move, plus and minus zoom, zero shows all.`,
  );
  host.addEventListener("keydown", (event) => {
    const call = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!call) return;
    event.preventDefault();
    call();
  });
  host.addEventListener("dblclick", () => range(0, axis.length));
  requestAnimationFrame(() => void load()); // once it has its width
  const bar = h(
    "div",
    { class: "controls" },
    slices.pick,
    h(
      "span",
      { class: "group", role: "group", "aria-label": "Zoom" },
      button("−", () => zoom(1 / 0.6), { "aria-label": "Zoom out" }),
      button("+", () => zoom(0.6), { "aria-label": "Zoom in" }),
      button("All", () => range(0, axis.length), { "aria-label": "Show all" }),
    ),
    h("span", { class: "hint" }, "Drag across the line to zoom in."),
  );
  return {
    element: h("div", { class: "view" }, slices.element, bar, host, trouble),
    refresh: () => void load(),
    picture: async () => (plot ? chart.picture(plot, `${shown(thing.path)} [${index()}]`) : null),
    index,
  };
}

/** Values along an axis: their means, and if there are more than one each, the least and largest. */
export interface Course {
  first: number;
  /** How many elements each value stands for. */
  step: number;
  rows: [mean: Float32Array, least?: Float32Array, largest?: Float32Array];
}

function courseOf(found: Numbers): Course {
  const [, length = 0] = found.shape;
  const [first = 0] = found.box;
  const step = Number(found.headers.get("X-Engram-Step") ?? 1);
  const row = (at: number) => found.data.subarray(at * length, (at + 1) * length);
  return { first, step, rows: step > 1 ? [row(1), row(0), row(2)] : [row(1)] };
}

/** Draws values along an axis; `chosen` is told which part of it was selected. */
export function show(
  host: HTMLElement,
  { first, step, rows }: Course,
  axis: Axis,
  title: string,
  unit: string,
  signal: AbortSignal,
  chosen?: (low: number, high: number) => void,
): uPlot {
  const xs = Array.from(rows[0], (_, at) => {
    const place = first + at * step + (step - 1) / 2;
    return axis.numeric ? axis.at(place) : place;
  });
  const drawn = rows.map((row) => chart.gaps(row!));
  if (xs.length > 1 && xs[0]! > xs[xs.length - 1]!) for (const row of [xs, ...drawn]) row.reverse();
  const value = (_: unknown, at: number | null | undefined) =>
    at == null ? "—" : `${number(at)}${unit ? ` ${unit}` : ""}`;
  const series: uPlot.Series[] = [
    { label: shown(axis.name), value: (_, x) => (x == null ? "—" : placeLabel(axis, x)) },
    {
      label: rows.length > 1 ? "mean" : "value",
      stroke: () => theme.colour("data"),
      width: 1.5,
      value,
    },
  ];
  if (rows.length > 1) {
    const edge = { stroke: () => "transparent", width: 0, points: { show: false }, value };
    series.push({ ...edge, label: "least" }, { ...edge, label: "largest" });
  }
  const select = (plot: uPlot) => {
    if (plot.select.width < 4 || !chosen) return;
    const [low, high] = [plot.select.left, plot.select.left + plot.select.width].map((at) => {
      const x = plot.posToVal(at, "x");
      return axis.numeric ? axis.place(x) : x;
    });
    chosen(low!, high!);
  };
  return chart.draw(
    host,
    {
      scales: { x: { time: axis.time } },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      axes: [
        axis.time ? chart.timeAxis(axis.title) : chart.axis(axis.title, ticksOf(axis)),
        chart.axis(unit ? `${title} (${unit})` : title, { size: 64 }),
      ],
      series,
      bands: rows.length > 1 ? [{ series: [3, 2], fill: () => theme.colour("data-soft") }] : [],
      cursor: { drag: { x: chosen !== undefined, y: false, setScale: false } },
      hooks: { setSelect: [select] },
    },
    [xs, ...drawn] as uPlot.AlignedData,
    HEIGHT,
    signal,
  );
}

function placeLabel(axis: Axis, x: number): string {
  const place = Math.round(axis.numeric ? axis.place(x) : x);
  return axis.label(place) || count(place);
}

/** Ticks of places that have texts are those texts; of other places, whole numbers. */
function ticksOf(axis: Axis): Partial<uPlot.Axis> {
  if (axis.numeric) return {};
  return {
    incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500]
      .flatMap((one) => [one, one * 1e3, one * 1e6])
      .sort((a, b) => a - b),
    values: (_, splits) => splits.map((place) => axis.label(place) || count(place)),
  };
}
