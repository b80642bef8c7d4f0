// The page: its frame, and which view stands in it.

import { active } from "./active";
import { Failure, get, type Pool, type Pools, watchFailures } from "./api";
import { compare } from "./compare";
import { button, check, choice, h } from "./dom";
import { fill, problem, remedy } from "./errors";
import * as events from "./events";
import { files } from "./files";
import { groups } from "./groups";
import { later } from "./looking";
import { nodes } from "./nodes";
import { object } from "./object";
import { query } from "./query";
import { records } from "./records";
import * as route from "./route";
import * as space from "./space";
import { stages } from "./stages";
import { bytes, count, sentence, shown } from "./text";
import * as theme from "./theme";
import { Tree } from "./tree";

type Panel = (pool: string, signal: AbortSignal) => Promise<HTMLElement>;
const isPool = (pool: Pool) => pool.kind === "pool";
const PANELS: {
  [name: string]: { title: string; make: Panel; of: (pool: Pool) => boolean; live: boolean };
} = {
  space: { title: "Space", make: space.space, of: isPool, live: false },
  index: { title: "Index", make: groups, of: isPool, live: true },
  active: { title: "Active objects", make: active, of: isPool, live: true },
  files: { title: "Files", make: files, of: isPool, live: true },
  stages: { title: "Stages", make: stages, of: isPool, live: true },
  nodes: { title: "Nodes", make: nodes, of: (pool) => pool.kind === "cluster", live: true },
};
const STATES: { [state in events.State]: [shown: string, title: string] } = {
  live: ["Live", "What changes is shown as it happens."],
  connecting: ["Connecting", "The page is asking the server for what changes."],
  paused: ["Paused", "Nothing is asked for while the page is not seen."],
  lost: ["No answer", "The server does not answer; the page tries again by itself."],
  refused: ["Refused", "The server does not tell this page what changes."],
};

class Page {
  private readonly main = h("main", { id: "main", tabindex: -1 });
  private readonly side = h("aside", { class: "side", "aria-label": "Pool" });
  private readonly banner = h("div", { class: "banner", role: "alert" });
  private readonly status = h("span", { class: "state", role: "status" });
  private readonly live = h("p", { class: "unseen", role: "status" });
  private readonly gone = new Map<string, string>();
  private pools: Pools = { version: "", write: false, pools: [] };
  private tree: { pool: string; tree: Tree; end: AbortController } | null = null;
  private view = new AbortController();

  async start(): Promise<void> {
    theme.start();
    this.frame();
    watchFailures((failure) => this.told(failure));
    this.keys();
    try {
      this.pools = await get<Pools>("api/pools", {}, null);
    } catch (error) {
      this.main.replaceChildren(problem(error, () => location.reload()));
      return;
    }
    route.watch((to) => this.show(to));
    this.listen();
    this.show(route.here());
  }

  private frame(): void {
    const menu = button("Pool", () => this.open(!document.body.classList.contains("open")), {
      class: "quiet menu",
      "aria-expanded": "false",
      "aria-controls": "side",
    });
    this.side.id = "side";
    const help = helpDialog();
    document.body.replaceChildren(
      h(
        "a",
        { class: "skip", href: "#main", on: { click: (event: Event) => this.skip(event) } },
        "Skip to content",
      ),
      h(
        "header",
        { class: "top" },
        menu,
        h("a", { class: "brand", href: "#/" }, "Engram"),
        h("span", { class: "space" }),
        this.status,
        button("Keys", () => help.showModal(), { class: "quiet", "aria-haspopup": "dialog" }),
        theme.control(),
      ),
      this.banner,
      h("div", { class: "frame" }, this.side, this.main),
      this.live,
      help,
    );
  }

  private open(open: boolean): void {
    document.body.classList.toggle("open", open);
    document.querySelector(".menu")?.setAttribute("aria-expanded", String(open));
    if (open) this.side.querySelector<HTMLElement>("a, input, [tabindex='0']")?.focus();
  }

  private skip(event: Event): void {
    event.preventDefault();
    this.main.focus();
  }

  private show(to: route.Route): void {
    this.view.abort();
    this.view = new AbortController();
    const lost = this.main.contains(document.activeElement);
    const { signal } = this.view;
    this.open(false);
    const pool = this.pools.pools.find(({ id }) => id === to.pool);
    const only = this.pools.pools.length === 1 ? this.pools.pools[0] : undefined;
    if (to.pool === "" && only) {
      history.replaceState(null, "", route.link(only.id));
      this.show(route.here());
      return;
    }
    const first = (to.params["a"] ?? "").split(":")[0];
    this.beside(
      pool ??
        (to.pool === "compare"
          ? (this.pools.pools.find(({ id }) => id === first) ?? only)
          : undefined),
      to,
    );
    const host = h("div", { class: "page" });
    this.main.replaceChildren(host);
    this.main.scrollTop = 0;
    if (lost) this.main.focus(); // what had the focus is gone
    if (to.pool === "") this.list(host);
    else if (to.pool === "compare") this.compare(host, to, signal);
    else if (!pool)
      host.replaceChildren(
        problem(new Failure(404, { message: `No pool has the id ${shown(to.pool)} here.` })),
      );
    else this.inside(host, pool, to, signal);
    this.title(pool, to);
  }

  private title(pool: Pool | undefined, to: route.Route): void {
    const panel = PANELS[to.params["panel"] ?? ""]?.title;
    const name = to.path.split("/").pop();
    const what =
      "query" in to.params ? "Query" : (panel ?? (to.pool === "compare" ? "Compare" : name));
    document.title = [what, pool?.label, "Engram"]
      .filter(Boolean)
      .map((part) => shown(part!))
      .join(" · ");
    this.live.textContent = document.title;
  }

  private inside(host: HTMLElement, pool: Pool, to: route.Route, signal: AbortSignal): void {
    const gone = this.gone.get(pool.id);
    if (gone) host.append(problem(new Failure(410, { message: gone })));
    const body = h("div", {});
    host.append(body);
    const panel = to.params["panel"];
    const known = PANELS[panel ?? ""];
    if ("query" in to.params || panel === "query") query(body, to, signal);
    else if (known) this.panel(body, pool, known, signal);
    else {
      object(body, { route: to, label: pool.label, write: this.pools.write, signal });
      void this.tree?.tree.reveal(to.path);
    }
  }

  private panel(
    host: HTMLElement,
    pool: Pool,
    panel: (typeof PANELS)[string],
    signal: AbortSignal,
  ): void {
    const body = h("div", {});
    host.append(h("header", { class: "heading" }, h("h1", { tabindex: -1 }, panel.title)), body);
    const load = () => void fill(body, signal, () => panel.make(pool.id, signal));
    load();
    if (!panel.live) return;
    const again = later(load, 500, signal);
    events.on("change", (change) => change.pool === pool.id && again(), signal);
    events.on("again", again, signal);
  }

  /** Pools, if there are several; the tree and the panels of the one that is shown. */
  private beside(pool: Pool | undefined, to: route.Route): void {
    if (this.tree?.pool !== pool?.id) {
      this.tree?.end.abort();
      this.tree = null;
      if (pool) {
        const end = new AbortController();
        this.tree = { pool: pool.id, tree: new Tree(pool.id, pool.label, end.signal), end };
      }
    }
    const { pools } = this.pools;
    const current = panelOf(to);
    const options = [["", "All pools"], ...pools.map(({ id, label }) => [id, shown(label)])] as [
      string,
      string,
    ][];
    const parts: (HTMLElement | null | undefined)[] = [
      pools.length > 1
        ? choice("Pool", options, pool?.id ?? "", (id) => route.go(route.link(id)))
        : null,
      pool &&
        h(
          "a",
          {
            class: "root",
            href: route.link(pool.id),
            "aria-current": !current && to.path === "" ? "page" : null,
          },
          h("bdi", {}, shown(pool.label)),
        ),
      this.tree?.tree.element,
      panels(pool, current),
    ];
    this.side.replaceChildren(...parts.filter((part) => part != null));
  }

  private compare(host: HTMLElement, to: route.Route, signal: AbortSignal): void {
    const pools = this.pools.pools.map(({ id, label }) => [id, label] as [string, string]);
    compare(host, to, pools, signal);
  }

  private list(host: HTMLElement): void {
    host.append(
      h("header", { class: "heading" }, h("h1", { tabindex: -1 }, "Pools")),
      records(
        "Pools",
        this.pools.pools,
        [
          {
            head: "Pool",
            cell: (pool) => h("a", { href: route.link(pool.id) }, h("bdi", {}, shown(pool.label))),
          },
          { head: "Kind", cell: (pool) => pool.kind },
          { head: "Place", cell: (pool) => h("bdi", { class: "code" }, shown(pool.place)) },
          {
            head: "Objects",
            cell: (pool) => (pool.error ? "" : count(pool.objects)),
            figure: true,
          },
          {
            head: "Used",
            cell: (pool) => (pool.error ? shown(pool.error) : bytes(pool.used)),
            figure: true,
          },
          { head: "Size", cell: (pool) => (pool.error ? "" : bytes(pool.size)), figure: true },
        ],
        "Nothing is served: engram serve takes the paths of pools.",
      ),
      h(
        "p",
        { class: "hint" },
        `Engram ${this.pools.version}${this.pools.write ? "; members may be changed from here" : ""}`,
      ),
    );
  }

  private listen(): void {
    events.on("state", ({ state, failure }) => {
      const [text, title] = STATES[state];
      this.status.className = `state ${state}`;
      this.status.title = title;
      if (this.status.textContent !== text) this.status.textContent = text;
      if (state === "live") this.banner.replaceChildren();
      else if (failure) this.told(failure);
    });
    events.on("space", space.record);
    events.on("gone", ({ pool, message }) => {
      this.gone.set(pool, message);
      this.told(new Failure(410, { message }));
    });
    let said = 0;
    events.on("change", ({ names, more, sure }) => {
      const now = Date.now();
      if (sure === false || now - said < 5000) return; // a screen reader is not talked over
      said = now;
      const rest = Math.max(0, names.length - 1) + more;
      const first = names[0] === undefined ? "The pool" : shown(names[0]);
      this.live.textContent = `${first}${rest > 0 && names.length ? ` and ${count(rest)} more` : ""} changed`;
    });
    events.start(this.pools.pools.map(({ id }) => id));
  }

  /** Says on top of the page what holds for all of it. */
  private told(failure: Failure | null): void {
    if (failure === null) {
      if (this.banner.dataset["status"] === "0") this.banner.replaceChildren();
      return;
    }
    if (![0, 401, 410].includes(failure.status)) return;
    const text = `${sentence(failure.message)} ${sentence(remedy(failure))}`;
    this.banner.dataset["status"] = String(failure.status);
    if (this.banner.textContent !== text) this.banner.replaceChildren(text);
  }

  private keys(): void {
    document.addEventListener("keydown", (event) => {
      const typing = (event.target as Element).closest("input, select, textarea, dialog");
      if (event.key === "Escape" && document.body.classList.contains("open")) this.open(false);
      if (typing || event.ctrlKey || event.metaKey || event.altKey || !singleKeys()) return;
      const current = this.tree?.pool ?? this.pools.pools[0]?.id;
      if (event.key === "/" && this.tree) {
        event.preventDefault();
        this.open(true);
        this.tree.tree.focusFilter();
      } else if (event.key === "q" && current !== undefined) {
        event.preventDefault();
        route.go(route.link(current, "", { panel: "query" }));
      }
    });
  }
}

/** Which panel is shown, if it is one. */
function panelOf(to: route.Route): string {
  if (to.pool === "compare") return "compare";
  return "query" in to.params ? "query" : (to.params["panel"] ?? "");
}

function panels(pool: Pool | undefined, current: string): HTMLElement {
  const item = (name: string, title: string, href: string) =>
    h("li", {}, h("a", { href, "aria-current": name === current ? "page" : null }, title));
  const ofPool = ({ id }: Pool, name: string, title: string) =>
    item(name, title, route.link(id, "", { panel: name }));
  const known = Object.entries(PANELS).filter(([, { of }]) => pool && of(pool));
  return h(
    "nav",
    { "aria-label": "Panels", class: "panels" },
    h(
      "ul",
      {},
      pool ? ofPool(pool, "query", "Query") : null,
      ...known.map(([name, { title }]) => ofPool(pool!, name, title)),
      item("compare", "Compare", route.link("compare")),
    ),
  );
}

const KEYS = "engram-keys";
function singleKeys(): boolean {
  try {
    return localStorage.getItem(KEYS) !== "off";
  } catch {
    return true;
  }
}

function helpDialog(): HTMLDialogElement {
  const keys: [string, string][] = [
    ["/", "Filter members by name"],
    ["q", "Query"],
    ["↑ ↓ → ←", "In the tree: go up, go down, open, close"],
    ["Enter", "In the tree: show the member"],
    ["← → ↑ ↓", "In an image, a map or a line: move"],
    ["+ − 0", "In an image, a map or a line: zoom in, zoom out, show all"],
    ["Ctrl + Space", "In a query: complete"],
  ];
  const dialog = h(
    "dialog",
    { class: "help", "aria-label": "Keys" },
    h("h2", {}, "Keys"),
    h(
      "dl",
      { class: "keylist" },
      ...keys.map(([key, does]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, does))),
    ),
    check("Single keys (/ and q) work", singleKeys(), (on) => {
      try {
        localStorage.setItem(KEYS, on ? "on" : "off");
      } catch {
        // It holds as it was.
      }
    }),
    h(
      "p",
      { class: "hint" },
      h("a", { href: "assets/THIRD-PARTY.txt" }, "Licences of what this page is made of"),
    ),
    h(
      "div",
      { class: "controls" },
      button("Close", () => dialog.close()),
    ),
  );
  return dialog;
}

void new Page().start();
