// Boxes in layers, with arrows from left to right: plans of queries, references of objects.

import { h, s } from "./dom";

export interface DrawnBox {
  id: string;
  lines: string[];
  /** An address to go to. */
  href?: string;
}
export interface Drawn {
  boxes: DrawnBox[];
  arrows: [from: string, to: string][];
}

const LINE = 18;
const PAD = 10;
const GAP_X = 56;
const GAP_Y = 14;
const MOST = 40;

interface Placed extends DrawnBox {
  x: number;
  y: number;
  width: number;
  height: number;
  layer: number;
}

/** The layer of each box: one more than the furthest of those that point to it. Cycles are cut. */
function layers({ boxes, arrows }: Drawn): Map<string, number> {
  const next = new Map<string, string[]>();
  for (const [from, to] of arrows) next.set(from, [...(next.get(from) ?? []), to]);
  const pointed = new Set(arrows.filter(([from, to]) => from !== to).map(([, to]) => to));
  const found = new Map<string, number>();
  const walk = (start: string) => {
    // Depth first without recursion: a chain may be long.
    const stack: [string, number, Set<string>][] = [[start, 0, new Set()]];
    let steps = 0;
    for (let top = stack.pop(); top && steps < 20_000; top = stack.pop(), steps += 1) {
      const [id, depth, above] = top;
      if (above.has(id) || (found.get(id) ?? -1) >= depth) continue;
      found.set(id, depth);
      for (const to of next.get(id) ?? []) stack.push([to, depth + 1, new Set([...above, id])]);
    }
  };
  for (const { id } of boxes) if (!pointed.has(id)) walk(id);
  for (const { id } of boxes) if (!found.has(id)) walk(id); // all in a cycle
  return found;
}

/** Each layer from top to bottom, in the order of what points to it. */
function place({ boxes, arrows }: Drawn): Map<string, Placed> {
  const at = layers({ boxes, arrows });
  const columns: Placed[][] = [];
  for (const box of boxes) {
    const layer = at.get(box.id) ?? 0;
    const longest = Math.max(...box.lines.map((line) => Math.min(line.length, MOST)));
    const size = { width: longest * 7.9 + 2 * PAD, height: box.lines.length * LINE + PAD };
    const column = columns[layer] ?? [];
    column.push({ ...box, ...size, x: 0, y: 0, layer });
    columns[layer] = column;
  }
  const made = new Map<string, Placed>();
  let x = 1;
  for (const column of columns) {
    if (!column) continue;
    const middle = (box: Placed) => {
      const from = arrows.filter(([, to]) => to === box.id).map(([one]) => made.get(one));
      const known = from.filter((one) => one !== undefined);
      return known.length
        ? known.reduce((sum, one) => sum + one.y + one.height / 2, 0) / known.length
        : Number.POSITIVE_INFINITY;
    };
    const wanted = new Map(column.map((box) => [box.id, middle(box)]));
    column.sort((one, other) => wanted.get(one.id)! - wanted.get(other.id)! || 0);
    let y = 1;
    for (const box of column) {
      box.x = x;
      box.y = y;
      y += box.height + GAP_Y;
      made.set(box.id, box);
    }
    x += Math.max(...column.map((box) => box.width)) + GAP_X;
  }
  centre(columns.filter(Boolean));
  return made;
}

function centre(columns: Placed[][]): void {
  const bottom = (column: Placed[]) => column.at(-1)!.y + column.at(-1)!.height;
  const tallest = Math.max(...columns.map(bottom));
  for (const column of columns) {
    const down = (tallest - bottom(column)) / 2;
    for (const box of column) box.y += down;
  }
}

const cut = (text: string) => (text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text);

export function draw(given: Drawn, label: string): HTMLElement {
  const placed = place(given);
  const boxes = [...placed.values()];
  const width = Math.max(...boxes.map((box) => box.x + box.width)) + 1;
  const height = Math.max(...boxes.map((box) => box.y + box.height)) + 1;
  const lines = given.arrows.flatMap(([from, to]) => {
    const [one, other] = [placed.get(from), placed.get(to)];
    return one && other ? [arrow(one, other)] : [];
  });
  const made = s(
    "svg",
    {
      class: "drawing",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "group",
      "aria-label": label,
    },
    s(
      "defs",
      {},
      s(
        "marker",
        {
          id: "arrow",
          viewBox: "0 0 8 8",
          refX: 7,
          refY: 4,
          markerWidth: 7,
          markerHeight: 7,
          orient: "auto",
        },
        s("path", { d: "M0 0 L8 4 L0 8 Z" }),
      ),
    ),
    ...lines,
    ...boxes.map(drawBox),
  );
  return h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": label }, made);
}

function arrow(one: Placed, other: Placed): SVGPathElement {
  const [y0, y1] = [one.y + one.height / 2, other.y + other.height / 2];
  const forward = other.layer > one.layer;
  const [x0, x1] = forward ? [one.x + one.width, other.x - 1] : [one.x, other.x + other.width + 1];
  const bend = forward ? Math.max(20, (x1 - x0) / 2) : -GAP_X / 2;
  const d = `M${x0} ${y0} C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`;
  return s("path", { class: "arrow", d, "marker-end": "url(#arrow)" });
}

function drawBox(box: Placed): SVGElement {
  const { x, y, width, height } = box;
  const inner = [
    s("title", {}, box.lines.join(": ")),
    s("rect", { x, y, width, height, rx: 5 }),
    ...box.lines.map((line, at) =>
      s(
        "text",
        { x: x + PAD, y: y + PAD / 2 + at * LINE + 13, class: at ? "soft" : "" },
        cut(line),
      ),
    ),
  ];
  return box.href
    ? s("a", { href: box.href, class: "node" }, ...inner)
    : s("g", { class: "node" }, ...inner);
}
