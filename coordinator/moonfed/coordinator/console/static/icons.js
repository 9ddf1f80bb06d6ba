// The console's own icons, drawn in the colour of the text around them.

import { svg } from "./dom.js";

const PATHS = {
  moon: "M20.5 14.6A8.5 8.5 0 1 1 10 3.6a6.8 6.8 0 0 0 10.5 11z M17 4.5h.01 M20 8h.01",
  runs: "M3 18l5.5-6 4 3.5L21 6 M15.5 6H21v5.5",
  fleet: "M4 5h6v6H4z M14 5h6v6h-6z M4 15h6v5H4z M14 15h6v5h-6z",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9z M4.2 7.6L12 12l7.8-4.4 M12 12v8.8",
  audit: "M6 3h9l4 4v14H6z M9 11h7 M9 15h7 M9 7h3",
  theme: "M12 4a8 8 0 1 0 0 16z M12 4a8 8 0 0 1 0 16",
  leave: "M14 4h5v16h-5 M10 8l-4 4 4 4 M6 12h9",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}
