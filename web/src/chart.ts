// What lines, histograms and courses share of uPlot: its colours, its size, its end.

import uPlot from "uplot";
import { number } from "./text";
import * as theme from "./theme";

/** An axis in the page's colours. */
export function axis(label: string, more: Partial<uPlot.Axis> = {}): uPlot.Axis {
  return {
    label,
    size: 32,
    labelSize: 20,
    labelFont: "12px system-ui, sans-serif",
    font: "12px system-ui, sans-serif",
    stroke: () => theme.colour("ink-soft"),
    grid: { stroke: () => theme.colour("line"), width: 1 },
    ticks: { stroke: () => theme.colour("line-strong"), width: 1, size: 5 },
    values: (_, splits) => splits.map((value) => (value === null ? "" : number(value, 6))),
    ...more,
  };
}

/** An axis of instants: uPlot's own labels. */
export function timeAxis(label: string): uPlot.Axis {
  const { values: _, ...rest } = axis(label);
  return rest;
}

/** A chart as wide as `host`, made anew in other colours when the theme changes. */
export function draw(
  host: HTMLElement,
  options: Omit<uPlot.Options, "width" | "height">,
  data: uPlot.AlignedData,
  height: number,
  signal: AbortSignal,
): uPlot {
  const size = () => ({ width: Math.max(160, host.clientWidth), height });
  const chart = new uPlot({ ...options, ...size() }, data, host);
  const sized = new ResizeObserver(() => {
    if (host.clientWidth !== chart.width && host.clientWidth > 0) chart.setSize(size());
  });
  sized.observe(host);
  theme.watch(() => chart.redraw(false), signal);
  signal.addEventListener("abort", () => {
    sized.disconnect();
    chart.destroy();
  });
  return chart;
}

/** What uPlot draws nothing for. */
export function gaps(values: ArrayLike<number>): (number | null)[] {
  return Array.from(values, (value) => (Number.isFinite(value) ? value : null));
}

export async function picture(chart: uPlot, title: string): Promise<Blob | null> {
  const source = chart.ctx.canvas;
  const canvas = document.createElement("canvas");
  const scale = source.width / Math.max(1, chart.width);
  canvas.width = source.width;
  canvas.height = source.height + 32 * scale;
  const context = canvas.getContext("2d")!;
  context.fillStyle = theme.colour("page");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, 0, 32 * scale);
  context.scale(scale, scale);
  context.fillStyle = theme.colour("ink");
  context.font = "600 13px system-ui, sans-serif";
  context.fillText(title, 8, 20, chart.width - 16);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
