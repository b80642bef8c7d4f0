// Lists of things of one kind as a table: each column has a heading and says what stands in a cell.

import { h } from "./dom";
import { value } from "./text";
import { scrolled } from "./tree";

export interface Column<T> {
  head: string;
  cell: (item: T) => Node | string;
  /** Whether it holds figures, which stand below each other. */
  figure?: boolean;
}

export function records<T>(
  label: string,
  items: readonly T[],
  columns: readonly Column<T>[],
  none: string,
): HTMLElement {
  if (items.length === 0) return h("p", { class: "empty" }, none);
  const kind = (column: Column<T>) => (column.figure ? "figure" : "");
  return scrolled(
    h(
      "table",
      { class: "list" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ...columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.head)),
        ),
      ),
      h(
        "tbody",
        {},
        ...items.map((item) =>
          h(
            "tr",
            {},
            ...columns.map((column) => h("td", { class: kind(column) }, column.cell(item))),
          ),
        ),
      ),
    ),
    label,
  );
}

/** What the server tells of things whose fields the page does not know by name. */
export function anything(
  label: string,
  items: readonly { [key: string]: unknown }[],
  none: string,
): HTMLElement {
  const keys = [...new Set(items.flatMap((item) => Object.keys(item)))];
  const columns = keys.map((key) => ({
    head: key.slice(0, 1).toUpperCase() + key.slice(1).replaceAll("_", " "),
    cell: (item: { [key: string]: unknown }) => value(item[key]),
    figure: items.every((item) => typeof item[key] === "number"),
  }));
  return records(label, items, columns, none);
}
