// An array as a table of texts. It scrolls over all of the array; what is loaded is the part that
// is seen, with some around it. Browsers bound how tall a page's parts may be: a table that would
// be taller is scrolled in proportion.

import { ofPool } from "./api";
import type { Axis } from "./axis";
import { h } from "./dom";
import { problem } from "./errors";
import { type Looking, later, Newest, type View } from "./looking";
import type { Params } from "./route";
import { choose, control, type Part, write } from "./slices";
import { shown } from "./text";

interface Answer {
  shape: number[];
  rows: string[][];
  columns?: string[];
}

const ROW = 26;
const COLUMN = 112;
const TALLEST = 4_000_000;
const WIDEST = 4_000_000;

export function table(looking: Looking): View {
  const { thing, axes, params, signal } = looking;
  const lengths = axes.map((axis) => axis.length);
  const across = Math.min(lengths.length, thing.fields?.length ? 1 : 2);
  const parts = choose(params["index"], lengths, across);
  const free = parts.flatMap((part, at) => (Array.isArray(part) ? [at] : []));
  const rows = free.length > 0 ? free[0]! : -1;
  const columns = free.length > 1 ? free[1]! : -1;
  const state: Params = { ...params };
  const note = (changes: Params) => looking.note(Object.assign(state, changes));
  const trouble = h("div", {});
  const slices = control(
    axes,
    // The table scrolls over whole dimensions, whatever range an image has had.
    parts.map((part, at): Part => (Array.isArray(part) ? [0, lengths[at]!] : part)),
    signal,
    () => {
      note({ index: write(slices.parts, lengths) });
      grid.refresh();
    },
    (set) => {
      const asked = lengths.map((length, at): Part => {
        const part = slices.parts[at];
        return set.includes(at) ? [0, length] : typeof part === "number" ? part : 0;
      });
      looking.renew({ ...state, index: write(asked, lengths) });
    },
  );
  const grid = new Grid({
    rows: rows < 0 ? null : axes[rows]!,
    columns: columns < 0 ? null : axes[columns]!,
    fields: thing.fields?.map((field) => field.name) ?? null,
    label: `Values of ${shown(thing.name)}`,
    signal,
    load: (r, c, own) => {
      const asked: Part[] = [...slices.parts];
      if (rows >= 0) asked[rows] = r;
      if (columns >= 0) asked[columns] = c;
      const query = {
        path: thing.path,
        index: write(asked, lengths),
        decoded: state["decoded"] ?? "1",
      };
      return ofPool<Answer>(looking.pool, "table", query, own);
    },
    failed: (error) =>
      trouble.replaceChildren(...(error ? [problem(error, () => grid.refresh())] : [])),
  });
  for (const [at, scroll] of [
    [rows, (place: number) => grid.show(place, 0)],
    [columns, (place: number) => grid.show(0, place)],
  ] as const) {
    const part = at < 0 ? undefined : parts[at];
    if (Array.isArray(part) && part[0] > 0) queueMicrotask(() => scroll(part[0]));
  }
  return {
    element: h(
      "div",
      { class: "view" },
      slices.pick ? h("div", { class: "controls" }, slices.pick) : null,
      slices.element,
      grid.element,
      trouble,
    ),
    refresh: () => grid.refresh(),
    index: () => write(slices.parts, lengths),
  };
}

interface Given {
  rows: Axis | null;
  columns: Axis | null;
  fields: string[] | null;
  label: string;
  signal: AbortSignal;
  load(rows: [number, number], columns: [number, number], signal: AbortSignal): Promise<Answer>;
  failed(error: unknown): void;
}

class Grid {
  readonly element: HTMLElement;
  private readonly given: Given;
  private readonly body = h("table", { class: "values" });
  private readonly spacer: HTMLElement;
  private readonly newest: Newest;
  private readonly soon: () => void;
  private readonly tall: number;
  private readonly wide: number;
  private readonly height: number;
  private readonly width: number;

  constructor(given: Given) {
    this.given = given;
    this.tall = given.rows?.length ?? 1;
    this.wide = given.columns?.length ?? 1;
    this.height = Math.min(TALLEST, (this.tall + 1) * ROW);
    this.width = given.columns ? Math.min(WIDEST, (this.wide + 1) * COLUMN) : 0;
    this.newest = new Newest(given.signal);
    this.soon = later(() => void this.load(), 40, given.signal);
    this.spacer = h("div", { class: "spacer" }, this.body);
    this.spacer.style.height = `${this.height}px`;
    if (this.width) this.spacer.style.width = `${this.width}px`;
    this.element = h(
      "div",
      { class: "grid", tabindex: 0, role: "region", "aria-label": given.label },
      this.spacer,
    );
    this.element.addEventListener("scroll", this.soon, { passive: true });
    const sized = new ResizeObserver(this.soon);
    sized.observe(this.element);
    given.signal.addEventListener("abort", () => sized.disconnect());
  }

  refresh(): void {
    void this.load();
  }

  /** Scrolls to a place. */
  show(row: number, column: number): void {
    const { element } = this;
    if (row) element.scrollTop = (row / this.tall) * this.height;
    if (column) element.scrollLeft = (column / this.wide) * this.width;
  }

  /** Which rows and columns are seen. */
  private seen(): { rows: [number, number]; columns: [number, number] } {
    const { element } = this;
    const span = (
      scrolled: number,
      all: number,
      size: number,
      each: number,
      length: number,
    ): [number, number] => {
      const many = Math.min(length, Math.ceil(size / each) + 1);
      const part = all > size ? scrolled / (all - size) : 0;
      const first = Math.round(Math.min(1, Math.max(0, part)) * Math.max(0, length - many + 2));
      const from = Math.min(first, Math.max(0, length - many));
      return [from, Math.min(length, from + many)];
    };
    return {
      rows: span(element.scrollTop, this.height, element.clientHeight, ROW, this.tall),
      columns: this.width
        ? span(element.scrollLeft, this.width, element.clientWidth, COLUMN, this.wide)
        : [0, this.wide],
    };
  }

  private async load(): Promise<void> {
    if (this.element.clientHeight === 0) return;
    const { rows, columns } = this.seen();
    this.element.setAttribute("aria-busy", "true");
    try {
      const found = await this.newest.run((signal) => this.given.load(rows, columns, signal));
      if (this.given.signal.aborted) return;
      this.given.failed(null);
      this.fill(found, rows[0], columns[0]);
    } catch (error) {
      if (this.given.signal.aborted || (error as Error).name === "AbortError") return;
      this.given.failed(error);
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  private fill(found: Answer, top: number, left: number): void {
    const { rows, columns, fields } = this.given;
    const names = fields ?? found.columns;
    const head = (text: string, at: number) => {
      if (names) return [shown(text)];
      return columns ? heading(columns, left + at) : ["value"];
    };
    const heads = (names ?? found.rows[0] ?? []).map((text, at) =>
      h("th", { scope: "col" }, ...head(text, at)),
    );
    const corner = [rows?.name, columns?.name]
      .filter((part) => part !== undefined)
      .map((part) => shown(part!));
    this.body.replaceChildren(
      h("caption", { class: "unseen" }, this.given.label),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          rows ? h("th", { scope: "col", class: "corner" }, corner.join(" \\ ")) : null,
          ...heads,
        ),
      ),
      h(
        "tbody",
        {},
        ...found.rows.map((cells, at) =>
          h(
            "tr",
            {},
            rows ? h("th", { scope: "row" }, ...heading(rows, top + at)) : null,
            ...cells.map((cell) => h("td", { title: shown(cell) }, shown(short(cell)))),
          ),
        ),
      ),
    );
  }
}

/** An index, and its coordinate beside it. */
function heading(axis: Axis, index: number): (HTMLElement | string)[] {
  const label = axis.label(index);
  return label ? [h("span", { class: "place" }, String(index)), ` ${label}`] : [String(index)];
}

/** Decoded values have digits that say nothing: twelve are shown, all are in the cell's title. */
function short(cell: string): string {
  return /^-?\d+\.\d{13,}$/.test(cell) ? String(Number(Number(cell).toPrecision(12))) : cell;
}
