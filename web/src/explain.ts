// How a query is answered, as a tree: what is done first is on the right.

import { h } from "./dom";
import { type Drawn, draw } from "./drawing";
import { count, lines, seconds, shown } from "./text";

export interface Step {
  label: string;
  detail?: string;
  rows?: number;
  seconds?: number;
  children?: Step[];
}
export interface Explained {
  text: string;
  tree: Step;
}

export function explain({ text, tree }: Explained): HTMLElement {
  const drawn: Drawn = { boxes: [], arrows: [] };
  const add = (step: Step, above: string | null) => {
    const id = `step-${drawn.boxes.length}`;
    drawn.boxes.push({ id, lines: linesOf(step) });
    if (above !== null) drawn.arrows.push([above, id]);
    for (const child of step.children ?? []) if (drawn.boxes.length < 300) add(child, id);
  };
  add(tree, null);
  return h(
    "section",
    { "aria-label": "How the query is answered" },
    h("h2", {}, "How the query is answered"),
    draw(drawn, "Steps of the query"),
    h("h3", {}, "In words"),
    h("pre", { class: "text", tabindex: 0 }, lines(text)),
  );
}

function linesOf(step: Step): string[] {
  const figures = [
    typeof step.rows === "number" ? `${count(step.rows)} rows` : "",
    typeof step.seconds === "number" ? seconds(step.seconds) : "",
  ];
  const made = [shown(step.label), shown(step.detail ?? ""), figures.filter(Boolean).join(", ")];
  return made.filter(Boolean);
}
