"""The cards' one style sheet: it touches nothing outside of them, and follows the notebook's theme.

Colours are the theme's own where it names them (JupyterLab's and VS Code's variables). Elsewhere
text keeps the colour of what is around it, and lines and fills are greys that let through what is
below: a card reads well on white and on black without asking which it is. (Asking the browser
would be wrong in a notebook that is always light: it tells what the desktop prefers.)
"""

_RULES = """
.engram-card {
  --engram-text: var(--jp-content-font-color1, var(--vscode-editor-foreground, inherit));
  --engram-line: var(--jp-border-color2, var(--vscode-panel-border, rgba(128, 128, 128, .35)));
  --engram-fill: var(--jp-layout-color2, var(--vscode-editorWidget-background,
    rgba(128, 128, 128, .14)));
  --engram-mark: var(--jp-brand-color1, var(--vscode-charts-blue, #3a86c8));
  --engram-mono: var(--jp-code-font-family, var(--vscode-editor-font-family,
    ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace));
  font-family: var(--jp-content-font-family, var(--vscode-font-family, system-ui, sans-serif));
  color: var(--engram-text); font-size: 13px; line-height: 1.5; max-width: 760px;
}
@ .engram-soft { opacity: .68; }
@ code, @ pre {
  font-family: var(--engram-mono); font-size: 12px; color: inherit; background: none; border: 0;
  padding: 0; margin: 0; white-space: pre-wrap; overflow-wrap: anywhere;
}
@ .engram-head {
  display: flex; flex-wrap: wrap; gap: 2px 10px; align-items: baseline; padding: 3px 8px;
  background: var(--engram-fill); border-left: 3px solid var(--engram-mark);
  overflow-wrap: break-word; min-width: 0;
}
@ .engram-head b { color: var(--engram-mark); }
@ details { margin: 2px 0 2px 8px; }
@ summary { cursor: pointer; padding: 1px 0; }
@ .engram-body { margin: 2px 0 6px 14px; }
@ .engram-head + .engram-body { margin-top: 4px; }
@ table { border-collapse: collapse; border: 0; margin: 0; font-size: 12px;
  color: inherit; table-layout: auto; }
@ tr, @ tr:nth-child(even), @ tr:hover { background: none; text-align: left; }
@ thead { border: 0; }
@ th, @ td { text-align: left; vertical-align: top; padding: 1px 14px 1px 0;
  border: 0; max-width: 460px; white-space: normal; overflow-wrap: break-word; color: inherit; }
@ th { font-weight: normal; opacity: .68; }
@ td.engram-text { white-space: pre-wrap; }
@ ul, @ ul ul { list-style: none; margin: 0; padding: 0; }
@ ul ul { margin-left: 6px; padding-left: 11px; border-left: 1px solid
  var(--engram-line); }
@ li { margin: 0; }
@ li > details { margin: 0; }
@ .engram-row { display: flex; flex-wrap: wrap; gap: 0 12px; padding: 1px 0 1px 14px; }
@ .engram-row > span { flex: 1 1 7em; min-width: 0; overflow-wrap: break-word; }
@ .engram-row > :first-child { flex: 2 1 13em; }
@ .engram-row > :nth-child(2) { flex: 2 1 9em; }
@ .engram-row > :last-child { flex: 0 1 5.5em; text-align: right; white-space: nowrap; }
@ .engram-wide { overflow-x: auto; }
@ .engram-bar { height: 6px; width: 320px; max-width: 100%; margin: 4px 0;
  background: var(--engram-fill); border: 1px solid var(--engram-line); }
@ .engram-bar > div { height: 100%; background: var(--engram-mark); }
@ .engram-plot { display: grid; gap: 2px 6px; margin: 4px 0; font-size: 11px; line-height: 1.2;
  grid-template-columns: fit-content(9em) minmax(0, max-content) max-content; }
@ .engram-side { display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; overflow-wrap: break-word; }
@ .engram-below { grid-column: 2; display: flex; justify-content: space-between; gap: 8px; }
@ .engram-scale { display: grid; grid-template: 1fr auto / 10px auto; gap: 0 4px; }
@ .engram-scale > div { grid-row: 1 / 3; }
@ .engram-scale > span:last-child { align-self: end; }
@ .engram-side, @ .engram-below, @ .engram-scale > span { opacity: .78; }
@ svg, @ img { display: block; max-width: 100%; border: 1px solid var(--engram-line); }
@ svg { color: var(--engram-mark); }
@ img { image-rendering: pixelated; }
@ .engram-serve { margin: 4px 0 0 8px; }
"""

_OURS = ".engram-card" * 3
"""The cards' class thrice: a notebook's rules for all tables and lists are of two classes."""

STYLE = f"<style>{' '.join(_RULES.replace('@', _OURS).split())}</style>"
"""The style sheet as an element, on one line."""
