// A plane of values: an image or a map that is zoomed and panned. It holds two levels of what is
// there: one of the whole plane, and one of what is seen. Each is at most as large as the screen,
// whatever the array's size; the server makes them. A screen's pixel finds its value by two tables,
// one for each direction, so that axes may be irregular, turned around or wrap.
//
// Positions on the plane are `u` to the right and `v` downwards, in units of the scales.

import type { Numbers } from "./api";
import type { Axis } from "./axis";
import { nice } from "./axis";
import * as colours from "./colour";
import { button, h } from "./dom";
import { problem } from "./errors";
import { later, Newest } from "./looking";
import { number } from "./text";
import * as theme from "./theme";

export interface Scale {
  axis: Axis;
  /** The whole extent. */
  low: number;
  high: number;
  /** The place in the array, of which element i covers [i, i + 1). */
  place(at: number): number;
  /** Whether it goes around, so that its ends are one place: then how long it is. */
  around?: number;
  ticks(low: number, high: number, most: number): { at: number; label: string }[];
  title: string;
}

export interface Level extends Pick<Numbers, "data"> {
  width: number;
  height: number;
  /** Rows and columns of the array that it covers: r0, r1, c0, c1. */
  box: number[];
  /** The unit of its values, if they are instants. */
  unit: string;
  /** Every so many rows and columns were looked at. */
  sampled: number[];
}

export interface Box {
  u0: number;
  u1: number;
  v0: number;
  v1: number;
}

export interface Colours {
  map: string;
  low: number | null;
  high: number | null;
  robust: boolean;
}

export interface Given {
  x: Scale;
  y: Scale;
  /** Whether a unit of `u` is as long as one of `v`. */
  equal: boolean;
  start: Box;
  colours: Colours;
  unit: string;
  label: string;
  load(
    rows: [number, number],
    columns: [number, number],
    size: [number, number],
    signal: AbortSignal,
  ): Promise<Level>;
  /** What is seen has changed. */
  moved(rows: [number, number], columns: [number, number], box: Box): void;
  overlay?(
    context: CanvasRenderingContext2D,
    to: (u: number, v: number) => [number, number],
    box: Box,
  ): void;
  signal: AbortSignal;
}

const BASE = 1024;
const MOST = 2048;
const FONT = "12px system-ui, sans-serif";

interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
}

export class Plane {
  readonly element: HTMLElement;
  colours: Colours;
  private readonly given: Given;
  private readonly canvas: HTMLCanvasElement;
  private readonly told: HTMLOutputElement;
  private readonly trouble = h("div", {});
  private readonly whole: Box;
  private box: Box;
  /** How wide the plane is for its height, where units are equal. */
  private readonly ratio: number | null;
  private base: Level | null = null;
  private detail: Level | null = null;
  private readonly baseLoads: Newest;
  private readonly detailLoads: Newest;
  private readonly soon: () => void;
  private asked = "";
  private drawing = 0;

  constructor(given: Given) {
    this.given = given;
    this.colours = given.colours;
    this.whole = { u0: given.x.low, u1: given.x.high, v0: given.y.low, v1: given.y.high };
    this.box = given.start;
    const ratio = (given.x.high - given.x.low) / (given.y.high - given.y.low);
    this.ratio = given.equal ? ratio : null;
    this.baseLoads = new Newest(given.signal);
    this.detailLoads = new Newest(given.signal);
    this.soon = later(() => void this.loadDetail(), 90, given.signal);
    this.canvas = h("canvas", {
      tabindex: 0,
      role: "img",
      "aria-label": `${given.label}. Arrow keys move, plus and minus zoom, zero shows all.`,
    });
    this.told = h("output", { class: "readout", "aria-live": "off" }, "\u00a0");
    const zoom = h(
      "span",
      { class: "group", role: "group", "aria-label": "Zoom" },
      button("−", () => this.zoom(1 / 0.6), { "aria-label": "Zoom out" }),
      button("+", () => this.zoom(0.6), { "aria-label": "Zoom in" }),
      button("All", () => this.fit(), { "aria-label": "Show all" }),
    );
    const foot = h("div", { class: "under" }, zoom, this.told);
    this.element = h("div", { class: "plane" }, this.canvas, foot, this.trouble);
    this.listen();
    theme.watch(() => this.draw(), given.signal);
    const sized = new ResizeObserver(() => {
      this.fitHeight();
      this.box = this.shaped(this.box);
      this.draw();
      this.soon();
    });
    sized.observe(this.canvas);
    given.signal.addEventListener("abort", () => sized.disconnect());
    queueMicrotask(() => void this.loadBase());
  }

  /** Loads everything anew: another slice, or another state of this one. */
  refresh(): void {
    this.asked = "";
    void this.loadBase();
    this.soon();
  }

  /** The range that the colours span. */
  range(): [number, number] {
    const level = this.base ?? this.detail;
    const { map, low, high, robust } = this.colours;
    const [from, to] = level ? colours.range(level.data, map, robust) : [0, 1];
    return [low ?? from, high ?? to];
  }

  private get unit(): string {
    return (this.base ?? this.detail)?.unit || this.given.unit;
  }

  /** What is said where no value is pointed at. */
  private rest(): string {
    const [rows = 1, columns = 1] = (this.detail ?? this.base)?.sampled ?? [];
    if (rows <= 1 && columns <= 1) return "\u00a0";
    return `A sample: of ${rows} rows one, and of ${columns} columns one.`;
  }

  recolour(): void {
    this.draw();
  }

  zoom(
    factor: number,
    u = (this.box.u0 + this.box.u1) / 2,
    v = (this.box.v0 + this.box.v1) / 2,
  ): void {
    const least = Math.abs(this.whole.u1 - this.whole.u0) / Math.max(1, this.given.x.axis.length);
    const { u0, u1, v0, v1 } = this.box;
    if (factor < 1 && (u1 - u0) * factor < 4 * least) return;
    const whole = this.shaped(this.whole);
    if (factor > 1 && (u1 - u0) * factor >= whole.u1 - whole.u0) {
      this.fit();
      return;
    }
    this.move({
      u0: u + (u0 - u) * factor,
      u1: u + (u1 - u) * factor,
      v0: v + (v0 - v) * factor,
      v1: v + (v1 - v) * factor,
    });
  }

  fit(): void {
    this.move(this.shaped(this.whole));
  }

  async picture(title: string): Promise<Blob | null> {
    const canvas = document.createElement("canvas");
    canvas.width = this.canvas.width;
    canvas.height = this.canvas.height + 32 * devicePixelRatio;
    const context = canvas.getContext("2d")!;
    context.scale(devicePixelRatio, devicePixelRatio);
    context.fillStyle = theme.colour("page");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = theme.colour("ink");
    context.font = `600 13px system-ui, sans-serif`;
    context.fillText(title, 8, 20, this.canvas.clientWidth - 16);
    context.translate(0, 32);
    this.render(context, this.canvas.clientWidth, this.canvas.clientHeight);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  private pan(across: number, down: number): void {
    const { u0, u1, v0, v1 } = this.box;
    const [du, dv] = [(u1 - u0) * across, (v1 - v0) * down];
    this.move({ u0: u0 + du, u1: u1 + du, v0: v0 + dv, v1: v1 + dv });
  }

  /** Never wholly beside the plane. */
  private move(box: Box): void {
    const kept = (low: number, high: number, least: number, most: number): [number, number] => {
      const size = high - low;
      if (size >= most - least) return [(least + most - size) / 2, (least + most + size) / 2];
      const from = Math.min(Math.max(low, least), most - size);
      return [from, from + size];
    };
    const [u0, u1] = kept(box.u0, box.u1, this.whole.u0, this.whole.u1);
    const [v0, v1] = kept(box.v0, box.v1, this.whole.v0, this.whole.v1);
    this.box = { u0, u1, v0, v1 };
    this.draw();
    this.soon();
  }

  /** The box, made larger so that it has the canvas's shape, if units must be equal. */
  private shaped(box: Box): Box {
    if (!this.given.equal) return box;
    const { width, height } = this.area(this.canvas.clientWidth, this.canvas.clientHeight);
    const [wide, high] = [box.u1 - box.u0, box.v1 - box.v0];
    const scale = Math.max(wide / width, high / height);
    if (!(scale > 0) || !Number.isFinite(scale)) return box;
    const [du, dv] = [(scale * width - wide) / 2, (scale * height - high) / 2];
    return { u0: box.u0 - du, u1: box.u1 + du, v0: box.v0 - dv, v1: box.v1 + dv };
  }

  /** Rows and columns of the array that are seen. */
  private seen(box: Box): { rows: [number, number]; columns: [number, number] } {
    const span = (scale: Scale, one: number, other: number): [number, number] => {
      const { axis, around } = scale;
      const cut = (at: number) => scale.place(Math.min(Math.max(at, scale.low), scale.high));
      const ends: [number, number] = [cut(one), cut(other)];
      const [low, high] = ends.toSorted((a, b) => a - b) as [number, number];
      // What lies on both sides of where the array begins is asked for with all between.
      const rising = axis.at(axis.length - 1) > axis.at(0);
      const begins = rising ? ends[1] <= ends[0] : ends[0] <= ends[1];
      if (around && (other - one >= around || begins)) return [0, axis.length];
      const from = Math.min(Math.max(0, Math.floor(low + 1e-6)), axis.length - 1);
      return [from, Math.max(from + 1, Math.min(axis.length, Math.ceil(high - 1e-6)))];
    };
    return {
      rows: span(this.given.y, box.v0, box.v1),
      columns: span(this.given.x, box.u0, box.u1),
    };
  }

  private async loadBase(): Promise<void> {
    const { x, y } = this.given;
    const size: [number, number] = [Math.min(BASE, x.axis.length), Math.min(BASE, y.axis.length)];
    await this.load(this.baseLoads, [0, y.axis.length], [0, x.axis.length], size, (level) => {
      this.base = level;
      this.detail = this.asked === "" ? null : this.detail;
    });
  }

  private async loadDetail(): Promise<void> {
    const { rows, columns } = this.seen(this.box);
    this.given.moved(rows, columns, this.box);
    const { width, height } = this.area(this.canvas.clientWidth, this.canvas.clientHeight);
    const fine = (pixels: number, places: number) =>
      Math.max(1, Math.min(MOST, places, Math.ceil(pixels * devicePixelRatio)));
    const size: [number, number] = [
      fine(width, columns[1] - columns[0]),
      fine(height, rows[1] - rows[0]),
    ];
    const { x, y } = this.given;
    const enough =
      Math.min(BASE, x.axis.length) / x.axis.length >=
        (size[0] / (columns[1] - columns[0])) * 0.99 &&
      Math.min(BASE, y.axis.length) / y.axis.length >= (size[1] / (rows[1] - rows[0])) * 0.99;
    const asked = `${rows}/${columns}/${size}`;
    if (enough || asked === this.asked) return;
    this.asked = asked;
    await this.load(this.detailLoads, rows, columns, size, (level) => {
      this.detail = level;
    });
  }

  private async load(
    newest: Newest,
    rows: [number, number],
    columns: [number, number],
    size: [number, number],
    use: (level: Level) => void,
  ): Promise<void> {
    this.element.setAttribute("aria-busy", "true");
    try {
      const level = await newest.run((signal) => this.given.load(rows, columns, size, signal));
      if (this.given.signal.aborted) return;
      use(level);
      this.trouble.replaceChildren();
      this.told.textContent = this.rest();
      this.draw();
    } catch (error) {
      if (this.given.signal.aborted || (error as Error).name === "AbortError") return;
      this.trouble.replaceChildren(problem(error, () => this.refresh()));
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  private draw(): void {
    cancelAnimationFrame(this.drawing);
    this.drawing = requestAnimationFrame(() => {
      const { clientWidth, clientHeight } = this.canvas;
      if (clientWidth === 0 || clientHeight === 0) return;
      this.canvas.width = Math.round(clientWidth * devicePixelRatio);
      this.canvas.height = Math.round(clientHeight * devicePixelRatio);
      const context = this.canvas.getContext("2d")!;
      context.scale(devicePixelRatio, devicePixelRatio);
      this.render(context, clientWidth, clientHeight);
    });
  }

  /** Where values are drawn. Axes are left of it and below, the colours' bar is on its right. */
  private area(width: number, height: number): Area {
    const [left, right, top, bottom] = margins(width);
    const most = {
      width: Math.max(10, width - left - right),
      height: Math.max(10, height - top - bottom),
    };
    if (this.ratio === null) return { left, top, ...most };
    // As much of it as has the plane's shape.
    const wide = Math.min(most.width, most.height * this.ratio);
    return { left, top, width: wide, height: Math.min(most.height, wide / this.ratio) };
  }

  /** No taller than the plane's shape needs. */
  private fitHeight(): void {
    if (this.ratio === null) return;
    const { clientWidth } = this.canvas;
    const [left, right, top, bottom] = margins(clientWidth);
    const wanted = (clientWidth - left - right) / this.ratio + top + bottom;
    const most = Math.max(300, Math.min(900, window.innerHeight * 0.58));
    this.canvas.style.height = `${Math.round(Math.max(200, Math.min(most, wanted)))}px`;
  }

  private render(context: CanvasRenderingContext2D, width: number, height: number): void {
    const area = this.area(width, height);
    const { box } = this;
    const range = this.range();
    context.font = FONT;
    context.fillStyle = theme.colour("nothing");
    context.fillRect(area.left, area.top, area.width, area.height);
    const values = this.paint(area, range);
    if (values) context.drawImage(values, area.left, area.top, area.width, area.height);
    else note(context, area);
    const to = (u: number, v: number): [number, number] => [
      area.left + ((u - box.u0) / (box.u1 - box.u0)) * area.width,
      area.top + ((v - box.v0) / (box.v1 - box.v0)) * area.height,
    ];
    if (this.given.overlay) {
      context.save();
      context.beginPath();
      context.rect(area.left, area.top, area.width, area.height);
      context.clip();
      this.given.overlay(context, to, box);
      context.restore();
    }
    this.drawAxes(context, area, to);
    this.drawBar(context, area, range);
  }

  private paint(area: Area, [low, high]: [number, number]): HTMLCanvasElement | null {
    if (!this.base && !this.detail) return null;
    const width = Math.max(1, Math.round(area.width * devicePixelRatio));
    const height = Math.max(1, Math.round(area.height * devicePixelRatio));
    const { box } = this;
    const across = (part: number) => this.given.x.place(box.u0 + (box.u1 - box.u0) * part);
    const down = (part: number) => this.given.y.place(box.v0 + (box.v1 - box.v0) * part);
    const columns = Float64Array.from({ length: width }, (_, at) => across((at + 0.5) / width));
    const rows = Float64Array.from({ length: height }, (_, at) => down((at + 0.5) / height));
    const canvas = document.createElement("canvas");
    canvas.width = width;
    canvas.height = height;
    const context = canvas.getContext("2d")!;
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const table = colours.table(this.colours.map);
    for (const level of [this.base, this.detail]) {
      if (level) fillPixels(pixels, level, rows, columns, low, 255 / (high - low), table);
    }
    context.putImageData(image, 0, 0);
    return canvas;
  }

  private drawAxes(
    context: CanvasRenderingContext2D,
    area: Area,
    to: (u: number, v: number) => [number, number],
  ): void {
    const { box } = this;
    const [right, bottom] = [area.left + area.width, area.top + area.height];
    context.strokeStyle = theme.colour("line-strong");
    context.lineWidth = 1;
    context.strokeRect(area.left - 0.5, area.top - 0.5, area.width + 1, area.height + 1);
    context.fillStyle = theme.colour("ink-soft");
    context.textAlign = "center";
    context.textBaseline = "top";
    const marks = new Path2D();
    let end = Number.NEGATIVE_INFINITY;
    const { x: across, y: down } = this.given;
    const within = (scale: Scale, one: number, other: number, most: number) =>
      scale.ticks(Math.max(one, scale.low), Math.min(other, scale.high), most);
    for (const { at, label } of within(across, box.u0, box.u1, area.width / 60)) {
      const [x] = to(at, 0);
      if (x < area.left - 1 || x > right + 1) continue;
      marks.moveTo(x, bottom + 1);
      marks.lineTo(x, bottom + 5);
      const half = context.measureText(label).width / 2;
      if (x - half < end + 8) continue;
      context.fillText(label, x, bottom + 8);
      end = x + half;
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const { at, label } of within(down, box.v0, box.v1, area.height / 45)) {
      const [, y] = to(0, at);
      if (y < area.top - 1 || y > bottom + 1) continue;
      marks.moveTo(area.left - 1, y);
      marks.lineTo(area.left - 5, y);
      context.fillText(label, area.left - 8, y, area.left - 26);
    }
    context.stroke(marks);
    context.fillStyle = theme.colour("ink");
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.fillText(this.given.x.title, area.left + area.width / 2, bottom + 39, area.width);
    turned(context, this.given.y.title, 12, area.top + area.height / 2, area.height);
  }

  private drawBar(
    context: CanvasRenderingContext2D,
    area: Area,
    [low, high]: [number, number],
  ): void {
    const width = area.left + area.width + (area.left < 60 ? 66 : 104);
    const [left, wide] = [area.left + area.width + 14, 12];
    const table = colours.table(this.colours.map);
    for (let at = 0; at < area.height; at += 1) {
      const colour = table[Math.round(255 * (1 - at / Math.max(1, area.height - 1)))]!;
      context.fillStyle = `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
      context.fillRect(left, area.top + at, wide, 1.5);
    }
    context.strokeRect(left - 0.5, area.top - 0.5, wide + 1, area.height + 1);
    context.fillStyle = theme.colour("ink-soft");
    context.textAlign = "left";
    context.textBaseline = "middle";
    const marks = new Path2D();
    const ticks = nice(low, high, Math.max(3, area.height / 50)).filter(
      (at) => at >= low && at <= high,
    );
    for (const at of ticks) {
      const y = area.top + area.height * (1 - (at - low) / (high - low));
      marks.moveTo(left + wide + 1, y);
      marks.lineTo(left + wide + 4, y);
      context.fillText(number(at, 5), left + wide + 7, y, width - left - wide - 10);
    }
    context.stroke(marks);
    if (this.unit && width - left > 80) {
      context.fillStyle = theme.colour("ink");
      context.textAlign = "center";
      context.textBaseline = "alphabetic";
      turned(context, this.unit, width - 6, area.top + area.height / 2, area.height);
    }
  }

  /** The value and the place under a point of the canvas. */
  private read(x: number, y: number): string {
    const area = this.area(this.canvas.clientWidth, this.canvas.clientHeight);
    const across = (x - area.left) / area.width;
    const down = (y - area.top) / area.height;
    if (across < 0 || across >= 1 || down < 0 || down >= 1) return "";
    const { box } = this;
    const column = Math.floor(this.given.x.place(box.u0 + (box.u1 - box.u0) * across));
    const row = Math.floor(this.given.y.place(box.v0 + (box.v1 - box.v0) * down));
    const level = [this.detail, this.base].find((held) => held && within(held, row, column));
    if (!level) return "";
    const [, value] = valueAt(level, row, column);
    const places = [this.given.y.axis, this.given.x.axis].map((axis, at) => {
      const index = at === 0 ? row : column;
      const label = axis.label(index);
      return `${axis.name} ${index}${label ? ` (${label})` : ""}`;
    });
    const [r0, r1, c0, c1] = level.box as [number, number, number, number];
    const coarse = level.width < c1 - c0 || level.height < r1 - r0;
    const unit = this.unit ? ` ${this.unit}` : "";
    return `${places.join(", ")}: ${coarse ? "about " : ""}${number(value)}${unit}`;
  }

  private listen(): void {
    const { canvas } = this;
    const step: { [key: string]: () => void } = {
      ArrowLeft: () => this.pan(-0.1, 0),
      ArrowRight: () => this.pan(0.1, 0),
      ArrowUp: () => this.pan(0, -0.1),
      ArrowDown: () => this.pan(0, 0.1),
      "+": () => this.zoom(0.7),
      "=": () => this.zoom(0.7),
      "-": () => this.zoom(1 / 0.7),
      "0": () => this.fit(),
    };
    canvas.addEventListener("keydown", (event) => {
      const call = event.ctrlKey || event.metaKey || event.altKey ? undefined : step[event.key];
      if (!call) return;
      event.preventDefault();
      call();
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(
          Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004),
          ...this.position(event),
        );
      },
      { passive: false },
    );
    canvas.addEventListener("dblclick", (event) => this.zoom(0.5, ...this.position(event)));
    canvas.addEventListener("pointerleave", () => {
      this.told.textContent = this.rest();
    });
    this.listenToPointers();
  }

  /** One pointer moves the plane, two zoom it. */
  private listenToPointers(): void {
    const { canvas } = this;
    const held = new Map<number, [number, number]>();
    canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, [event.offsetX, event.offsetY]);
      canvas.setPointerCapture(event.pointerId);
    });
    for (const name of ["pointerup", "pointercancel"] as const) {
      canvas.addEventListener(name, (event) => held.delete(event.pointerId));
    }
    canvas.addEventListener("pointermove", (event) => {
      this.told.textContent = this.read(event.offsetX, event.offsetY) || this.rest();
      const before = held.get(event.pointerId);
      if (!before) return;
      const now: [number, number] = [event.offsetX, event.offsetY];
      const other = [...held].find(([id]) => id !== event.pointerId)?.[1];
      held.set(event.pointerId, now);
      const area = this.area(canvas.clientWidth, canvas.clientHeight);
      if (!other) {
        this.pan((before[0] - now[0]) / area.width, (before[1] - now[1]) / area.height);
        return;
      }
      const apart = (point: [number, number]) =>
        Math.max(10, Math.hypot(point[0] - other[0], point[1] - other[1]));
      const middle = { offsetX: (now[0] + other[0]) / 2, offsetY: (now[1] + other[1]) / 2 };
      this.zoom(apart(before) / apart(now), ...this.position(middle));
    });
  }

  private position(event: { offsetX: number; offsetY: number }): [number, number] {
    const area = this.area(this.canvas.clientWidth, this.canvas.clientHeight);
    const { u0, u1, v0, v1 } = this.box;
    return [
      u0 + ((event.offsetX - area.left) / area.width) * (u1 - u0),
      v0 + ((event.offsetY - area.top) / area.height) * (v1 - v0),
    ];
  }
}

function margins(width: number): [left: number, right: number, top: number, bottom: number] {
  return width < 560 ? [54, 66, 8, 44] : [72, 104, 10, 48];
}

/** Says that values are still to come. */
function note(context: CanvasRenderingContext2D, area: Area): void {
  context.fillStyle = theme.colour("ink-soft");
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText("Loading…", area.left + area.width / 2, area.top + area.height / 2);
}

function turned(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  most: number,
) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.fillText(text, 0, 0, most);
  context.restore();
}

function within(level: Level, row: number, column: number): boolean {
  const [r0, r1, c0, c1] = level.box as [number, number, number, number];
  return row >= r0 && row < r1 && column >= c0 && column < c1;
}

function valueAt(level: Level, row: number, column: number): [number, number] {
  const [r0, r1, c0, c1] = level.box as [number, number, number, number];
  const y = Math.floor(((row + 0.5 - r0) / (r1 - r0)) * level.height);
  const x = Math.floor(((column + 0.5 - c0) / (c1 - c0)) * level.width);
  const at = y * level.width + x;
  return [at, level.data[at] ?? Number.NaN];
}

/** For each place, which line of a level holds it; -1 where none does. */
function lines(places: Float64Array, from: number, to: number, length: number): Int32Array {
  return Int32Array.from(places, (place) =>
    place >= from && place < to
      ? Math.min(length - 1, Math.floor(((place - from) / (to - from)) * length))
      : -1,
  );
}

function fillPixels(
  pixels: Uint32Array,
  level: Level,
  rows: Float64Array,
  columns: Float64Array,
  low: number,
  scale: number,
  table: Uint32Array,
): void {
  const [r0, r1, c0, c1] = level.box as [number, number, number, number];
  const across = lines(columns, c0, c1, level.width);
  const down = lines(rows, r0, r1, level.height);
  const { data } = level;
  let at = 0;
  for (const line of down) {
    if (line < 0) {
      at += across.length;
      continue;
    }
    const start = line * level.width;
    for (const place of across) {
      if (place >= 0) {
        const value = data[start + place]!;
        // What is no number has no colour: the ground shows.
        pixels[at] = !Number.isNaN(value)
          ? table[Math.max(0, Math.min(255, Math.round((value - low) * scale)))]!
          : 0;
      }
      at += 1;
    }
  }
}
