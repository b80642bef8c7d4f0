// The tree of a pool's members: a list of rows of which only those that are seen are elements.
//
// A group's members come in pages, in the order of their names. A page is the interval of names
// (after, upto]; the last has no end. So a change under a name is looked for in one page, however
// many members there are, and a page that grew too large in the meantime is read on.

import { type Member, type Members, ofPool, stale } from "./api";
import { button, h } from "./dom";
import { problem } from "./errors";
import * as events from "./events";
import { later, Newest } from "./looking";
import { go, link } from "./route";
import { bytes, count, order, shape, shown } from "./text";

const ROW = 28;
const PAGE = 500;
const SPARE = 8;

interface Page {
  after: string;
  /** The last name that the page may hold; null where nothing follows. */
  upto: string | null;
  nodes: Node[];
  /** Whether something may have changed; it is read anew once it is seen. */
  stale: boolean;
}

interface Node {
  member: Member;
  depth: number;
  open: boolean;
  pages: Page[];
  total: number | null;
  loading: Promise<void> | null;
  trouble: unknown;
}

/** A row: a member, the place after a group's last page, or what went wrong there. */
type Row =
  | { node: Node; group: Node; page: Page; at: number; of: number; more: null }
  | { node: Node; more: "next" | "trouble" };

function node(member: Member, depth: number): Node {
  return { member, depth, open: false, pages: [], total: null, loading: null, trouble: null };
}

/** How many of a group's members are loaded. */
const loaded = ({ pages }: Node) => pages.reduce((sum, page) => sum + page.nodes.length, 0);

/** What has members that are shown. */
const opens = ({ kind }: Member) => kind === "group" || kind === "active";

const ICONS: { [kind: string]: string } = {
  group: "▸",
  array: "▦",
  table: "☰",
  blob: "◫",
  active: "◉",
  file: "▤",
  link: "↪",
};

export class Tree {
  readonly element: HTMLElement;
  private readonly pool: string;
  private readonly signal: AbortSignal;
  private root: Node;
  private rows: Row[] = [];
  private current = 0;
  private selected = "";
  private contains = "";
  /** The group in which the filter looks: the one that is shown, or that holds what is shown. */
  private scope = "";
  private readonly list: HTMLElement;
  private readonly spacer = h("div", { class: "spacer", role: "none" });
  private readonly status = h("p", { class: "hint", role: "status" });
  private readonly filter: HTMLInputElement;
  private drawing = 0;

  constructor(pool: string, label: string, signal: AbortSignal) {
    this.pool = pool;
    this.signal = signal;
    this.root = node({ name: "", path: "", kind: "group" }, -1);
    this.list = h("div", {
      class: "tree",
      role: "tree",
      tabindex: 0,
      "aria-label": `Members of ${label}`,
    });
    this.list.append(this.spacer);
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter by name",
      "aria-label": "Filter members by name",
      spellcheck: "false",
      autocomplete: "off",
    });
    const filtered = later(() => this.restart(this.filter.value.trim()), 200, signal);
    this.filter.addEventListener("input", filtered);
    this.element = h("div", { class: "browse" }, this.filter, this.list, this.status);
    this.list.addEventListener("scroll", () => this.draw(), { passive: true });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => this.click(event));
    const sized = new ResizeObserver(() => this.draw());
    sized.observe(this.list);
    signal.addEventListener("abort", () => sized.disconnect());
    events.on("change", (change) => change.pool === pool && this.changed(change), signal);
    events.on("again", () => this.reload(), signal);
    void this.next(this.root);
  }

  focusFilter(): void {
    this.filter.focus();
  }

  /** Shows where a member is; its groups are opened. */
  async reveal(path: string): Promise<void> {
    this.selected = path;
    this.scope = path.slice(0, Math.max(0, path.lastIndexOf("/")));
    if (this.contains) {
      this.draw(); // what was filtered stays
      return;
    }
    const names = path.split("/").filter(Boolean);
    let at = this.root;
    for (const [depth, name] of names.entries()) {
      const found = await this.member(at, name);
      if (this.signal.aborted || this.selected !== path) return;
      if (!found) break;
      if (depth < names.length - 1 && opens(found.member) && !found.open) {
        found.open = true;
        if (found.pages.length === 0) await this.next(found);
      }
      at = found;
    }
    if (opens(at.member)) this.scope = at.member.path;
    this.flatten();
    const row = this.rows.findIndex((one) => one.more === null && one.node.member.path === path);
    if (row >= 0) {
      this.current = row;
      this.scrollTo(row);
    }
    this.draw();
  }

  /** A member by its name, if it is in a page that is loaded, or in the next ones. */
  private async member(group: Node, name: string): Promise<Node | null> {
    if (group.pages.length === 0) await this.next(group);
    for (let tries = 0; tries < 4; tries += 1) {
      for (const page of group.pages) {
        const found = page.nodes.find((one) => one.member.name === name);
        if (found) return found;
      }
      const last = group.pages.at(-1);
      if (!last || last.upto === null || order(name, last.upto) <= 0) return null;
      await this.next(group);
    }
    return null;
  }

  private restart(contains: string): void {
    if (contains === this.contains) return;
    this.contains = contains;
    const path = contains ? this.scope : "";
    this.root = node({ name: "", path, kind: "group" }, -1);
    this.rows = [];
    this.current = 0;
    this.list.scrollTop = 0;
    void this.next(this.root).then(() => (contains ? undefined : this.reveal(this.selected)));
  }

  private ask(group: Node, after: string): Promise<Members> {
    const contains = group === this.root || this.contains === "" ? this.contains : "";
    const query = {
      path: group.member.path,
      after: after || null,
      limit: PAGE,
      contains: contains || null,
    };
    return ofPool<Members>(this.pool, "members", query, this.signal);
  }

  /** Loads a group's next page; whoever asks meanwhile waits for the same one. */
  private next(group: Node): Promise<void> {
    if (group.pages.at(-1)?.upto === null) return Promise.resolve();
    group.loading ??= this.load(group).finally(() => {
      group.loading = null;
    });
    return group.loading;
  }

  private async load(group: Node): Promise<void> {
    const { root } = this;
    try {
      const after = group.pages.at(-1)?.upto ?? "";
      const found = await this.ask(group, after);
      if (root !== this.root) return;
      group.pages.push({
        after,
        upto: found.after,
        nodes: found.members.map((member) => node(member, group.depth + 1)),
        stale: false,
      });
      group.total = found.total ?? group.total;
      group.trouble = null;
    } catch (error) {
      if (stale(error) || this.signal.aborted) return;
      group.trouble = error;
    }
    this.flatten();
    this.draw();
  }

  private changed({ names, more }: events.Change): void {
    if (more > 0 || names.length === 0) {
      this.reload(); // nobody says what it was
      return;
    }
    const pages = new Map<Page, Node>();
    for (const path of names) {
      const slash = path.lastIndexOf("/");
      const group = this.find(slash < 0 ? "" : path.slice(0, slash));
      const name = path.slice(slash + 1);
      const page = group?.pages.find(({ upto }) => upto === null || order(name, upto) <= 0);
      if (group && page) pages.set(page, group);
    }
    for (const [page, group] of pages) void this.reread(group, page);
  }

  /** A group that is in the tree, by its path. */
  private find(path: string): Node | null {
    let at: Node | undefined = this.root;
    const above = at.member.path;
    if (above && path !== above && !path.startsWith(`${above}/`)) return null;
    for (const name of path.slice(above.length).split("/").filter(Boolean)) {
      at = at.pages.flatMap((page) => page.nodes).find((one) => one.member.name === name);
      if (!at) return null;
    }
    return at;
  }

  /** All that is loaded may be out of date: what is seen is read anew, the rest when it is seen. */
  private reload(): void {
    const groups: Node[] = [this.root];
    for (const group of groups) {
      for (const page of group.pages) {
        page.stale = true;
        if (page.nodes.length === 0) void this.reread(group, page);
        groups.push(...page.nodes.filter((one) => one.pages.length > 0));
      }
    }
    this.draw();
  }

  /** Reads a page anew. What is open in it stays open. */
  private async reread(group: Node, page: Page): Promise<void> {
    const { root } = this;
    page.stale = false;
    const held = new Map(page.nodes.map((one) => [one.member.name, one]));
    let found: Member[];
    try {
      found = await this.interval(group, page);
    } catch (error) {
      if (!stale(error)) page.stale = true; // it is tried again when something changes
      return;
    }
    if (root !== this.root || this.signal.aborted) return;
    const kept = this.rows[this.current]?.node.member.path;
    page.nodes = found.map((member) => {
      const old = held.get(member.name);
      if (!old || old.member.kind !== member.kind) return node(member, group.depth + 1);
      old.member = member;
      return old;
    });
    this.flatten();
    const row = this.rows.findIndex((one) => one.more === null && one.node.member.path === kept);
    if (row >= 0) this.current = row;
    this.draw();
  }

  /** All members of a page's interval; of the last one, at most as many as a page begins with. */
  private async interval(group: Node, page: Page): Promise<Member[]> {
    const { upto } = page;
    const found: Member[] = [];
    for (let { after } = page; ; ) {
      const answer = await this.ask(group, after);
      const inside = answer.members.filter(({ name }) => upto === null || order(name, upto) <= 0);
      found.push(...inside);
      group.total = answer.total ?? group.total;
      if (upto === null) page.upto = answer.after;
      if (upto === null || answer.after === null || order(answer.after, upto) >= 0) return found;
      after = answer.after;
    }
  }

  /** The rows of all that is open, in order. */
  private flatten(): void {
    const rows: Row[] = [];
    const add = (group: Node) => {
      const whole = group.pages.at(-1)?.upto === null;
      const of = whole ? loaded(group) : (group.total ?? -1);
      const all = group.pages.flatMap((page) => page.nodes.map((one) => ({ one, page })));
      for (const [at, { one, page }] of all.entries()) {
        rows.push({ node: one, group, page, at: at + 1, of, more: null });
        if (one.open) add(one);
      }
      if (!whole) rows.push({ node: group, more: group.trouble ? "trouble" : "next" });
    };
    add(this.root);
    this.rows = rows;
    this.current = Math.min(this.current, Math.max(0, rows.length - 1));
    this.tell();
  }

  private tell(): void {
    const { pages, total, member } = this.root;
    const known = loaded(this.root);
    const whole = pages.at(-1)?.upto === null;
    const sure = whole ? known : total;
    const many = sure === null ? `more than ${count(known)}` : count(sure);
    const within = member.path ? ` in ${shown(member.path)}` : "";
    const empty = this.contains ? `Nothing matches${within}.` : "This pool is empty.";
    const what = this.contains ? `found${within}` : sure === 1 ? "member" : "members";
    const text = sure === 0 ? empty : `${many} ${what}`;
    if (this.status.textContent !== text) this.status.textContent = text;
  }

  private draw(): void {
    cancelAnimationFrame(this.drawing);
    this.drawing = requestAnimationFrame(() => {
      this.spacer.style.height = `${this.rows.length * ROW}px`;
      const [first, last] = this.seen();
      const seen = this.rows.slice(first, last);
      for (const row of seen) {
        if (row.more === null && row.page.stale) void this.reread(row.group, row.page);
      }
      this.spacer.replaceChildren(...seen.map((row, at) => this.row(row, first + at)));
      const active = this.rows[this.current] ? `row-${this.current}` : "";
      if (active && this.current >= first && this.current < last) {
        this.list.setAttribute("aria-activedescendant", active);
      } else {
        this.list.removeAttribute("aria-activedescendant");
      }
    });
  }

  /** Which rows are seen, with some around them. */
  private seen(): [number, number] {
    const { scrollTop, clientHeight } = this.list;
    return [
      Math.max(0, Math.floor(scrollTop / ROW) - SPARE),
      Math.min(this.rows.length, Math.ceil((scrollTop + clientHeight) / ROW) + SPARE),
    ];
  }

  private row(row: Row, at: number): HTMLElement {
    const { node } = row;
    const depth = row.more === null ? node.depth : node.depth + 1;
    const made = h("div", {
      id: `row-${at}`,
      class: `row${at === this.current ? " current" : ""}`,
      role: "treeitem",
      "aria-level": depth + 1,
      "aria-selected": row.more === null && node.member.path === this.selected,
      "data-at": at,
      style: { top: `${at * ROW}px`, "padding-inline-start": `${8 + depth * 16}px` },
    });
    made.setAttribute(
      "aria-selected",
      String(row.more === null && node.member.path === this.selected),
    );
    if (row.more !== null) {
      made.classList.add("more");
      if (row.more === "next") void this.next(node);
      made.textContent = row.more === "next" ? "Loading more…" : "Could not be loaded: try again";
      return made;
    }
    const { member } = node;
    made.setAttribute("aria-posinset", String(row.at));
    made.setAttribute("aria-setsize", String(row.of));
    if (opens(member)) made.setAttribute("aria-expanded", String(node.open));
    const icon = h(
      "span",
      { class: `icon ${member.kind}${node.open ? " open" : ""}`, "aria-hidden": "true" },
      ICONS[member.kind] ?? "•",
    );
    made.append(
      icon,
      h("bdi", { class: "name", title: shown(member.name) }, shown(member.name)),
      h("span", { class: "unseen" }, `, ${member.kind}`),
      h("span", { class: "aside" }, beside(member)),
    );
    return made;
  }

  private click(event: MouseEvent): void {
    const target = (event.target as Element).closest<HTMLElement>("[data-at]");
    if (!target) return;
    this.current = Number(target.dataset["at"]);
    const row = this.rows[this.current]!;
    const onIcon = (event.target as Element).closest(".icon") !== null;
    if (row.more === null && opens(row.node.member) && (onIcon || !row.node.open)) {
      this.toggle(row.node);
    }
    if (!onIcon || row.more !== null || !opens(row.node.member)) this.activate(row);
    this.draw();
  }

  private activate(row: Row): void {
    if (row.more !== null) {
      row.node.trouble = null;
      void this.next(row.node);
      return;
    }
    this.selected = row.node.member.path;
    go(link(this.pool, row.node.member.path));
  }

  private toggle(one: Node): void {
    one.open = !one.open;
    if (one.open && one.pages.length === 0) void this.next(one);
    this.flatten();
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.rows[this.current];
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const steps: { [key: string]: () => void } = {
      ArrowDown: () => this.step(this.current + 1),
      ArrowUp: () => this.step(this.current - 1),
      PageDown: () => this.step(this.current + page),
      PageUp: () => this.step(this.current - page),
      Home: () => this.step(0),
      End: () => this.step(this.rows.length - 1),
      ArrowRight: () => row?.more === null && this.inward(row.node),
      ArrowLeft: () => row && this.outward(row),
      Enter: () => row && this.activate(row),
      " ": () => row && this.activate(row),
    };
    const call = steps[event.key];
    if (!call) return;
    event.preventDefault();
    call();
    this.draw();
  }

  private inward(one: Node): void {
    if (!opens(one.member)) return;
    if (one.open) this.step(this.current + 1);
    else this.toggle(one);
  }

  private outward(row: Row): void {
    if (row.more === null && row.node.open) {
      this.toggle(row.node);
      return;
    }
    const depth = row.more === null ? row.node.depth : row.node.depth + 1;
    for (let at = this.current - 1; at >= 0; at -= 1) {
      const above = this.rows[at]!;
      if (above.more === null && above.node.depth < depth) {
        this.step(at);
        return;
      }
    }
  }

  private step(to: number): void {
    this.current = Math.max(0, Math.min(this.rows.length - 1, to));
    this.scrollTo(this.current);
    this.draw();
  }

  private scrollTo(row: number): void {
    const top = row * ROW;
    const { list } = this;
    this.spacer.style.height = `${this.rows.length * ROW}px`;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight)
      list.scrollTop = top + ROW - list.clientHeight;
  }
}

/** What is said of a member beside its name. */
function beside(member: Member): string {
  if (opens(member))
    return member.many ? "1000+" : member.members === undefined ? "" : count(member.members);
  if (member.shape) return member.shape.length ? shape(member.shape) : (member.dtype ?? "");
  return member.bytes === undefined ? "" : bytes(member.bytes);
}

/** A group's own list of members, as its page shows it, with a filter. */
export async function members(
  pool: string,
  path: string,
  signal: AbortSignal,
): Promise<{ element: HTMLElement; refresh(): Promise<void> }> {
  const body = h("tbody", {});
  const foot = h("div", {});
  const seen = h("span", { class: "hint", role: "status" });
  const newest = new Newest(signal);
  let after: string | null = null;
  let many = 0;
  const load = (from: string | null, limit: number): Promise<Members> => {
    const query = { path, after: from, limit, contains: filter.value.trim() || null };
    return newest.run((own) => ofPool<Members>(pool, "members", query, own));
  };
  const failed = (error: unknown) => {
    if (!signal.aborted && !stale(error)) foot.replaceChildren(problem(error));
  };
  const add = (found: Members) => {
    many += found.members.length;
    after = found.after;
    body.append(...found.members.map((member) => line(pool, member)));
    seen.textContent = found.after === null ? `${count(many)} in all` : `The first ${count(many)}`;
    foot.replaceChildren(...(found.after === null ? [] : [more]));
  };
  const more = button("Show more", () => void load(after, 200).then(add, failed));
  const refresh = async () => {
    const found = await load(null, Math.max(100, Math.min(many, PAGE)));
    many = 0;
    body.replaceChildren();
    add(found);
  };
  const filtered = later(() => void refresh().catch(failed), 200, signal);
  const filter = h("input", {
    type: "search",
    placeholder: "Filter",
    "aria-label": "Filter this group's members",
    spellcheck: "false",
    on: { input: filtered },
  });
  await refresh();
  const heads = ["Name", "Kind", "Dtype", "Shape", "Bytes"].map((text, at) =>
    h("th", { scope: "col", class: at === 4 ? "figure" : "" }, text),
  );
  const table = h("table", { class: "list" }, h("thead", {}, h("tr", {}, ...heads)), body);
  const element = h(
    "section",
    {},
    h("h2", {}, "Members"),
    h("div", { class: "controls" }, h("span", { class: "filter" }, filter), seen),
    scrolled(table, "Members"),
    foot,
  );
  return { element, refresh };
}

/** A table that is scrolled sideways where it is too wide, with the keyboard too. */
export function scrolled(table: HTMLElement, label: string): HTMLElement {
  return h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": label }, table);
}

function line(pool: string, member: Member): HTMLElement {
  return h(
    "tr",
    {},
    h("td", {}, h("a", { href: link(pool, member.path) }, h("bdi", {}, shown(member.name)))),
    h("td", {}, member.kind),
    h("td", {}, member.dtype ?? ""),
    h(
      "td",
      {},
      member.shape
        ? shape(member.shape)
        : member.members === undefined
          ? ""
          : `${count(member.members)} members`,
    ),
    h("td", { class: "figure" }, member.bytes === undefined ? "" : bytes(member.bytes)),
  );
}
