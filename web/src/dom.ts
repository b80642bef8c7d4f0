// Elements, made of names, attributes and children. Text is text: nothing here reads markup, and
// styles are set through the object model, which a strict policy allows.

export type Child = Node | string | null | undefined | false;
type Value = string | number | boolean | null | undefined;
export interface Properties {
  on?: { [name: string]: (event: never) => void };
  style?: { [name: string]: string };
  [name: string]: Value | object;
}

function fill<E extends Element & ElementCSSInlineStyle>(
  made: E,
  properties: Properties,
  children: Child[],
): E {
  const { on = {}, style = {}, ...attributes } = properties;
  for (const [event, call] of Object.entries(on)) {
    made.addEventListener(event, call as (event: Event) => void);
  }
  for (const [key, text] of Object.entries(style)) made.style.setProperty(key, text);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(
    ...children.filter((child): child is Node | string => child != null && child !== false),
  );
  return made;
}

/** An element of HTML. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), properties, children);
}

/** An element of SVG. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K,
  properties: Properties = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

export function button(label: string, call: () => void, properties: Properties = {}) {
  return h("button", { type: "button", ...properties, on: { click: call } }, label);
}

/** A labelled `<select>`. */
export function choice(
  label: string,
  options: readonly (readonly [value: string, shown: string])[],
  value: string,
  call: (value: string) => void,
): HTMLLabelElement {
  const select = h(
    "select",
    { on: { change: () => call(select.value) } },
    ...options.map(([key, shown]) => h("option", { value: key, selected: key === value }, shown)),
  );
  return h("label", { class: "field" }, h("span", {}, label), select);
}

export function check(label: string, value: boolean, call: (value: boolean) => void) {
  const box: HTMLInputElement = h("input", {
    type: "checkbox",
    checked: value,
    on: { change: () => call(box.checked) },
  });
  return h("label", { class: "field check" }, box, h("span", {}, label));
}

let ids = 0;
/** An id for this page alone. */
export const fresh = (stem: string): string => `${stem}-${++ids}`;
