// A confusion matrix and the results by class.

import { h } from "./dom.js";
import { count, percent } from "./format.js";

const MOST = 40; // classes in a table; beyond, only those confused most often

// rows: the numbers of samples of each class by predicted class
export function confusion(names, rows) {
  if (names.length > MOST) return mostConfused(names, rows);
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

function mostConfused(names, rows) {
  const wrong = rows.flatMap((row, place) => row.map((value, column) => [value, names[place], names[column]]).filter(([value], column) => value && column !== place));
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
