// Which part of an array is seen: for each dimension one index, or a range of it. Views say how
// many ranges they need; the control shows a slider for each other dimension.

import type { Axis } from "./axis";
import { button, choice, h } from "./dom";
import { name } from "./text";

/** One index, or [first, end) of a range. */
export type Part = number | [number, number];

export function parse(text: string | undefined, lengths: readonly number[]): (Part | null)[] {
  const parts = (text ?? "").split(",");
  return lengths.map((length, at) => {
    const part = parts[at]?.trim() ?? "";
    if (/^\d+$/.test(part)) return Math.min(Number(part), Math.max(0, length - 1));
    const range = /^(\d*):(\d*)$/.exec(part);
    if (!range) return null;
    const from = Math.min(Number(range[1] || 0), length);
    const to = Math.min(range[2] ? Number(range[2]) : length, length);
    return to > from ? [from, to] : [0, length];
  });
}

export function write(parts: readonly Part[], lengths: readonly number[]): string {
  return parts
    .map((part, at) => {
      if (typeof part === "number") return String(part);
      return part[0] === 0 && part[1] === lengths[at] ? ":" : `${part[0]}:${part[1]}`;
    })
    .join(",");
}

/** The parts of an array with exactly `ranges` ranges; `prefer` are the dimensions that have them. */
export function choose(
  text: string | undefined,
  lengths: readonly number[],
  ranges: number,
  prefer?: readonly number[],
): Part[] {
  const given = parse(text, lengths);
  const asked = given.flatMap((part, at) => (Array.isArray(part) ? [at] : []));
  let free = asked.length === ranges ? asked : prefer?.length === ranges ? [...prefer] : [];
  if (free.length !== ranges) {
    // The last long dimensions, then short ones, in the array's order.
    const all = lengths.map((_, at) => at);
    const long = all.filter((at) => lengths[at]! > 1);
    const rest = all.filter((at) => lengths[at]! <= 1);
    free = [...rest, ...long].slice(-ranges).sort((one, other) => one - other);
  }
  return lengths.map((length, at) => {
    const part = given[at];
    if (free.includes(at)) return Array.isArray(part) ? part : [0, length];
    return typeof part === "number" ? part : 0;
  });
}

export interface Slices {
  element: HTMLElement;
  /** The choice of dimensions that are drawn, if there is one. */
  pick: HTMLElement | null;
  parts: Part[];
}

/** Sliders for the dimensions that are fixed, and a choice of those that are not. */
export function control(
  axes: readonly Axis[],
  parts: Part[],
  signal: AbortSignal,
  moved: () => void,
  renewed: (free: number[]) => void,
): Slices {
  const element = h("div", { class: "slices" });
  const free = parts.flatMap((part, at) => (Array.isArray(part) ? [at] : []));
  const pick = free.length > 0 && free.length < axes.length ? ranged(axes, free, renewed) : null;
  for (const [at, axis] of axes.entries()) {
    if (typeof parts[at] === "number") element.append(slider(axis, at, parts, signal, moved));
  }
  return { element, pick, parts };
}

/** Which dimensions are drawn. */
function ranged(axes: readonly Axis[], free: number[], renewed: (free: number[]) => void) {
  const sets: number[][] = [];
  for (let one = 0; one < axes.length; one += 1) {
    if (free.length === 1) sets.push([one]);
    else for (let other = one + 1; other < axes.length; other += 1) sets.push([one, other]);
  }
  const written = (set: number[]) => set.map((at) => axes[at]!.name).join(" × ");
  return choice(
    "Show",
    sets.map((set) => [set.join(), written(set)] as const),
    free.join(),
    (value) => renewed(value.split(",").map(Number)),
  );
}

export function slider(
  axis: Axis,
  at: number,
  parts: Part[],
  signal: AbortSignal,
  moved: () => void,
) {
  const top = Math.max(0, axis.length - 1);
  const bounds = { min: 0, max: top, step: 1, value: parts[at] as number };
  const range = h("input", { type: "range", ...bounds, "aria-label": `${axis.name}: index` });
  const field = h("input", {
    type: "number",
    ...bounds,
    "aria-label": `${axis.name}: index, as a number`,
  });
  const told = h("span", { class: "told" });
  const show = () => {
    const index = parts[at] as number;
    range.value = field.value = String(index);
    const label = axis.label(index);
    told.textContent = label || `of ${top}`;
    range.setAttribute("aria-valuetext", label ? `${index}: ${label}` : `${index} of ${top}`);
  };
  const set = (value: number) => {
    if (!Number.isFinite(value)) return;
    parts[at] = Math.min(top, Math.max(0, Math.round(value)));
    show();
    moved();
  };
  range.addEventListener("input", () => set(range.valueAsNumber));
  field.addEventListener("change", () => set(field.valueAsNumber));
  show();
  return h(
    "div",
    { class: "slice" },
    h("span", { class: "dim" }, name(axis.name)),
    range,
    field,
    told,
    player(axis, signal, () => set(((parts[at] as number) + 1) % axis.length)),
  );
}

/** Steps on, four times a second, until it is stopped. */
function player(axis: Axis, signal: AbortSignal, step: () => void): HTMLElement {
  let timer: number | undefined;
  const made = button("▶", () => {
    if (timer === undefined) timer = window.setInterval(step, 250);
    else stop();
    made.textContent = timer === undefined ? "▶" : "❚❚";
    made.setAttribute("aria-pressed", String(timer !== undefined));
  });
  const stop = () => {
    window.clearInterval(timer);
    timer = undefined;
  };
  made.className = "quiet play";
  made.setAttribute("aria-label", `Play along ${axis.name}`);
  made.setAttribute("aria-pressed", "false");
  made.disabled = axis.length < 2;
  signal.addEventListener("abort", stop);
  return made;
}
