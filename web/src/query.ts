// Queries: a box that completes what is typed, says what is wrong under the place where it is
// wrong, and lists what is found.

import { Failure, type Kind, ofPool, stale } from "./api";
import { button, fresh, h } from "./dom";
import { fill } from "./errors";
import { type Explained, explain } from "./explain";
import { later, Newest } from "./looking";
import { type Column, records } from "./records";
import { go, link, type Route } from "./route";
import { seconds, sentence, shape, shown, value } from "./text";

interface Row {
  path: string;
  kind: Kind;
  dtype?: string;
  shape?: number[];
  attrs: { [name: string]: unknown };
}
interface Found {
  columns: string[];
  rows: Row[];
  seconds: number;
  more: boolean;
}
interface Choice {
  text: string;
  kind: string;
  note?: string;
}
interface Completion {
  from: number;
  to: number;
  choices: Choice[];
}

const PAGE = 100;

export function query(host: HTMLElement, route: Route, signal: AbortSignal): void {
  const { pool, params } = route;
  const results = h("div", { class: "results" });
  const box = new Box(pool, params["query"] ?? "", signal);
  const orders = h("input", {
    type: "text",
    size: 30,
    value: params["order"] ?? "",
    placeholder: "for example temperature, @path",
    spellcheck: "false",
    autocomplete: "off",
  });
  const run = (changes: { [key: string]: string } = {}) => {
    const asked = { query: box.text, order: orders.value.trim(), ...changes };
    const to = link(pool, "", asked.query === "" ? { panel: "query", ...asked } : asked);
    if (to === location.hash) show();
    else go(to);
  };
  const show = () => {
    box.clear();
    const { explain: how } = params;
    void fill(results, signal, async () => {
      try {
        if (how) {
          return explain(await ofPool<Explained>(pool, "explain", { text: box.text }, signal));
        }
        return await found(route, box.text, signal);
      } catch (error) {
        if (error instanceof Failure && error.at) {
          box.wrong(error);
          return h("div", {});
        }
        throw error;
      }
    });
  };
  const form = h(
    "form",
    {
      class: "query",
      role: "search",
      on: {
        submit: (event: SubmitEvent) => {
          event.preventDefault();
          run();
        },
      },
    },
    box.element,
    h(
      "div",
      { class: "controls" },
      h("label", { class: "field" }, h("span", {}, "Order by"), orders),
      h("button", { type: "submit", class: "primary" }, "Find"),
      button("Explain", () => run({ explain: "1" })),
    ),
  );
  host.replaceChildren(
    h("header", { class: "heading" }, h("h1", { tabindex: -1 }, "Query")),
    h(
      "p",
      { class: "lead" },
      "Find objects by their attributes, names, groups, types or sizes, for example ",
      h("code", {}, 'temperature < -15 and level = "four"'),
      ".",
    ),
    form,
    results,
  );
  if (params["query"]) show();
  else box.focus();
}

async function found(
  { pool, params }: Route,
  text: string,
  signal: AbortSignal,
): Promise<HTMLElement> {
  const offset = Math.max(0, Number(params["offset"] ?? 0) || 0);
  const asked = { text, order: params["order"] ?? "", limit: PAGE, offset };
  const answer = await ofPool<Found>(pool, "query", asked, signal);
  const { rows } = answer;
  const keys = answer.columns.filter((key) => rows.some((row) => key in row.attrs)).slice(0, 12);
  const columns: Column<Row>[] = [
    {
      head: "Path",
      cell: (row) => h("a", { href: link(pool, row.path) }, h("bdi", {}, shown(row.path))),
    },
    { head: "Kind", cell: (row) => row.kind },
    { head: "Dtype", cell: (row) => row.dtype ?? "" },
    { head: "Shape", cell: (row) => (row.shape ? shape(row.shape) : "") },
    ...keys.map((key) => ({
      head: shown(key),
      cell: (row: Row) => (key in row.attrs ? value(row.attrs[key]) : ""),
    })),
  ];
  const step = (to: number, label: string) =>
    h(
      "a",
      { class: "button", href: link(pool, "", { ...params, offset: to ? String(to) : "" }) },
      label,
    );
  const which = rows.length
    ? `${offset + 1} to ${offset + rows.length}${answer.more ? ", and more" : ""}`
    : "None";
  return h(
    "div",
    {},
    h("p", { class: "hint", role: "status" }, `${which}; found in ${seconds(answer.seconds)}.`),
    records(
      "What was found",
      rows,
      columns,
      "Nothing matches. Keys and their kinds are in the index.",
    ),
    h(
      "div",
      { class: "controls" },
      offset > 0 ? step(Math.max(0, offset - PAGE), "Previous") : null,
      answer.more ? step(offset + PAGE, "Next") : null,
    ),
  );
}

/** Places in a text are counted in characters by the server, in units of UTF-16 by the browser. */
const units = (text: string, characters: number) => [...text].slice(0, characters).join("").length;
const characters = (text: string, place: number) => [...text.slice(0, place)].length;

class Box {
  readonly element: HTMLElement;
  private readonly pool: string;
  private readonly field: HTMLInputElement;
  private readonly list: HTMLElement;
  private readonly mark: HTMLElement;
  private readonly newest: Newest;
  private choices: Choice[] = [];
  private span: [number, number] = [0, 0];
  private current = -1;

  constructor(pool: string, text: string, signal: AbortSignal) {
    this.pool = pool;
    this.newest = new Newest(signal);
    const [list, mark] = [fresh("choices"), fresh("wrong")];
    this.field = h("input", {
      type: "text",
      class: "code",
      role: "combobox",
      value: text,
      "aria-label": "Query",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": list,
      "aria-describedby": mark,
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "none",
      placeholder: "temperature < -15",
    });
    this.list = h("div", {
      id: list,
      class: "choices",
      role: "listbox",
      "aria-label": "Completions",
      hidden: true,
    });
    this.mark = h("div", { id: mark, class: "wrong" });
    this.element = h("div", { class: "box" }, this.field, this.list, this.mark);
    const soon = later(() => void this.complete(), 60, signal);
    this.field.addEventListener("input", () => {
      this.clear();
      soon();
    });
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.field.addEventListener("blur", () => this.close());
  }

  get text(): string {
    return this.field.value;
  }

  focus(): void {
    this.field.focus();
  }

  clear(): void {
    this.mark.replaceChildren();
    this.field.removeAttribute("aria-invalid");
  }

  /** Says what is wrong, under the place where it is. */
  wrong(failure: Failure): void {
    const [from, to] = failure.at!;
    // The server's message draws the place for a terminal: that is done here.
    const said = failure.message.split("\n")[0]!.replace(/^(line \d+, )?column \d+: /, "");
    const marked = " ".repeat(from) + "^".repeat(Math.max(1, to - from));
    this.field.setAttribute("aria-invalid", "true");
    this.mark.replaceChildren(
      h("pre", { "aria-hidden": "true" }, `${shown(this.text)}\n`, h("span", {}, marked)),
      h(
        "p",
        { role: "alert" },
        h("strong", {}, sentence(said)),
        ` At character ${from + 1}.`,
        failure.remedy ? h("span", {}, ` ${failure.remedy}`) : null,
      ),
    );
  }

  private async complete(): Promise<void> {
    const place = this.field.selectionStart ?? this.text.length;
    const asked = { text: this.text, at: characters(this.text, place) };
    try {
      const found = await this.newest.run((signal) =>
        ofPool<Completion>(this.pool, "complete", asked, signal),
      );
      if (document.activeElement !== this.field || this.text !== asked.text) return;
      this.span = [units(this.text, found.from), units(this.text, found.to)];
      const typed = this.text.slice(...this.span);
      this.choices = found.choices.filter(({ text }) => text !== typed);
      this.open();
    } catch (error) {
      if (!stale(error)) this.close(); // what is typed may be run all the same
    }
  }

  private open(): void {
    this.current = -1;
    this.list.replaceChildren(
      ...this.choices.map((one, at) =>
        h(
          "div",
          {
            id: `${this.list.id}-${at}`,
            role: "option",
            "aria-selected": "false",
            on: {
              // Before the box loses its focus.
              pointerdown: (event: PointerEvent) => {
                event.preventDefault();
                this.take(at);
              },
            },
          },
          h("span", { class: "code" }, shown(one.text)),
          h("span", { class: "aside" }, [one.kind, one.note].filter(Boolean).join(" · ")),
        ),
      ),
    );
    this.list.hidden = this.choices.length === 0;
    this.field.setAttribute("aria-expanded", String(!this.list.hidden));
    this.field.removeAttribute("aria-activedescendant");
  }

  private close(): void {
    this.choices = [];
    this.open();
  }

  private point(to: number): void {
    const many = this.choices.length;
    this.current = ((to % many) + many) % many;
    for (const [at, option] of [...this.list.children].entries()) {
      option.setAttribute("aria-selected", String(at === this.current));
      if (at === this.current) option.scrollIntoView({ block: "nearest" });
    }
    this.field.setAttribute("aria-activedescendant", `${this.list.id}-${this.current}`);
  }

  private take(at: number): void {
    const { text } = this.choices[at]!;
    const [from, to] = this.span;
    // What was typed since the choices came belongs to the word.
    this.field.setRangeText(text, from, Math.max(to, this.field.selectionStart ?? to), "end");
    this.close();
    this.field.focus();
  }

  private key(event: KeyboardEvent): void {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      void this.complete();
      return;
    }
    if (this.list.hidden) {
      if (event.key === "ArrowDown") void this.complete();
      return;
    }
    const calls: { [key: string]: () => void } = {
      ArrowDown: () => this.point(this.current + 1),
      ArrowUp: () => this.point(this.current < 0 ? -1 : this.current - 1),
      Escape: () => this.close(),
      Tab: () => this.take(Math.max(0, this.current)),
    };
    if (this.current >= 0) calls["Enter"] = () => this.take(this.current);
    const call = event.shiftKey ? undefined : calls[event.key];
    if (!call) return;
    event.preventDefault();
    call();
  }
}
