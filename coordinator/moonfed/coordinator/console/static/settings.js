// A run's settings: pairs of a name and a text.

import { labelText } from "./fleet.js";

export function settingFacts(settings) {
  return Object.entries(settings).map(([name, value]) => [name.replaceAll("_", " "), text(value)]);
}

function text(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "object" ? labelText(value) : String(value);
}
