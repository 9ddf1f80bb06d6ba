// One version of a model: its evaluation by variant, its confusion matrix, its card.

import { get } from "./api.js";
import { card, facts, h, link, path, replace } from "./dom.js";
import { classTable, confusion } from "./confusion.js";
import { bytes, count, fixed, measured, moment, named, withUnit } from "./format.js";
import { markdown } from "./markdown.js";

export async function show(root, name, version) {
  const release = await get(`/api/models/${encodeURIComponent(name)}/${version}`);
  const { rows } = await get(`/api/runs/${encodeURIComponent(release.run)}/evaluations`, { round: release.round }).catch(() => ({ rows: [] }));
  const { kind, names, units } = release.target;
  const files = Object.entries(release.files);
  const [, float32] = files.find(([variant]) => variant === "float32") ?? files[0];
  const pictures = Object.fromEntries(float32.pictures.map((file) => [file, `/api/models/${encodeURIComponent(name)}/${version}/float32/${encodeURIComponent(file)}`]));
  const sets = rows.map((row) => row.score).filter((score) => score?.confusion.length);
  replace(root,
    h("div", { class: "title" }, h("h1", {}, link(path("models", name), name), ` v${release.version}`)),
    h("div", { class: "two" },
      h("div", { class: "page" }, card("Version", facts([
        [release.metric.name, release.score === null ? "not evaluated" : `${withUnit(release.score, release.metric)} on ${count(release.samples, "sample")}`],
        ["run", h("span", {}, link(path("runs", release.run), release.run), `, round ${release.round}`)],
        ["created", `${moment(release.created)} by ${release.operator}`],
        names.length > 0 && [{ labels: "labels", values: "values" }[kind] ?? "classes", `${names.length}: ${names.slice(0, 12).map((one, place) => named({ name: one, unit: units[place] })).join(", ")}${names.length > 12 ? ", …" : ""}`],
        ["manifest", h("code", {}, release.manifest.sha256)],
      ]), variants(files, release.metric)),
      sets.length > 0 && float32.evaluation?.classes && card("By class", classTable(float32.evaluation.classes))),
      sets.length ? card(`Confusion matrix, test set ${sets[0].test_set}`, confusion(sets[0].classes.map((one) => one.name), sets[0].confusion))
        : float32.evaluation?.classes?.length > 0 && card("By class", classTable(float32.evaluation.classes))),
    card("Model card", h("div", { class: "markdown" }, markdown(float32.card, pictures))));
}

function variants(files, metric) {
  const base = files.find(([variant]) => variant === "float32")?.[1].evaluation?.metrics[metric.name];
  return h("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Variants" }, h("table", { class: "small" }, h("caption", { class: "quiet" }, "Variants"),
    h("thead", {}, h("tr", {}, ["variant", named(metric), "against float32", "loss", "model"].map((text, place) => h("th", { scope: "col", class: place ? "number" : "" }, text)))),
    h("tbody", {}, files.map(([variant, { evaluation, files: parts }]) => h("tr", {}, h("td", {}, variant), h("td", { class: "number" }, measured(evaluation?.metrics[metric.name], metric)),
      h("td", { class: "number" }, base !== undefined && evaluation ? metric.share ? `${(100 * (evaluation.metrics[metric.name] - base)).toFixed(2)} points` : fixed(evaluation.metrics[metric.name] - base) : "–"),
      h("td", { class: "number" }, fixed(evaluation?.metrics.loss)), h("td", { class: "number" }, bytes(parts.find((one) => one.name === "model.onnx")?.bytes)))))));
}
