// A confusion matrix and the results by class.

import { h } from "./dom.js";
import { count, percent } from "./format.js";

const MOST = 40; // classes in a table; beyond, only those confused most often

export function confusion(names, numbers) {
  const size = names.length;
  if (size > MOST) return mostConfused(names, numbers);
  const rows = names.map((_, row) => numbers.slice(row * size, (row + 1) * size));
  const totals = rows.map((row) => row.reduce((sum, value) => sum + value, 0) || 1);
  return h("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Confusion matrix" },
    h("table", {}, h("caption", { class: "quiet" }, "Samples by class (rows) and predicted class (columns)"),
      h("thead", {}, h("tr", {}, h("td", {}), names.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row, place) => h("tr", {}, h("th", { scope: "row" }, names[place]), row.map((value, column) => {
        const share = value / totals[place];
        const kind = column === place ? "right" : "wrong";
        return h("td", { class: `${kind} ${share > 0.5 ? "strong" : ""}`, "--share": `${Math.round(100 * share)}%`,
          title: `${names[place]} predicted as ${names[column]}: ${value}` }, value || "·");
      }))))));
}

function mostConfused(names, numbers) {
  const size = names.length;
  const wrong = [];
  numbers.forEach((value, place) => {
    const row = Math.floor(place / size);
    if (value && row !== place % size) wrong.push([value, names[row], names[place % size]]);
  });
  wrong.sort((a, b) => b[0] - a[0]);
  return h("table", { class: "small" }, h("caption", { class: "quiet" }, "Classes that are confused most often"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "class"), h("th", { scope: "col" }, "predicted as"), h("th", { scope: "col", class: "number" }, "samples"))),
    h("tbody", {}, wrong.slice(0, 20).map(([value, name, predicted]) => h("tr", {}, h("td", {}, name), h("td", {}, predicted), h("td", { class: "number" }, count(value))))));
}

export function classTable(classes) {
  return h("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Results by class" }, h("table", { class: "small" },
    h("thead", {}, h("tr", {}, ["class", "precision", "recall", "samples"].map((name, place) => h("th", { scope: "col", class: place ? "number" : "" }, name)))),
    h("tbody", {}, classes.map((one) => h("tr", {}, h("td", {}, one.name), h("td", { class: "number" }, percent(one.precision)),
      h("td", { class: "number" }, percent(one.recall)), h("td", { class: "number" }, count(one.support)))))));
}
