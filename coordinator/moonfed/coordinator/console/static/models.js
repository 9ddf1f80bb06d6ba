// All released models with their newest version and deployment.

import { get, repeat } from "./api.js";
import { badge, card, h, link, path, replace } from "./dom.js";
import { ago, count, measured, percent, titled } from "./format.js";

export async function show(root) {
  const list = h("div", { class: "cards" });
  replace(root, h("h1", {}, "Models"), list);
  return repeat(5, async () => {
    const { rows, deployments } = await get("/api/models");
    const names = [...new Set(rows.map((row) => row.name))];
    replace(list, names.length === 0 && card(null, h("p", { class: "quiet" }, "Nothing has been released. Release a run's model with: moonfed-export release create RUN --name NAME --data DATA")),
      names.map((name) => {
        const newest = rows.findLast((row) => row.name === name);
        const deployment = deployments.find((one) => one.name === name);
        return h("section", { class: "card model" }, h("h2", {}, link(path("models", name), name), " ", h("span", { class: "quiet" }, `v${newest.version}`)),
          h("div", { class: "tiles" }, h("div", { class: "tile" }, h("span", { class: "name" }, titled(newest.metric)), h("strong", {}, measured(newest.score, newest.metric)), h("span", { class: "note" }, newest.samples ? count(newest.samples, "sample") : "not evaluated")),
            h("div", { class: "tile" }, h("span", { class: "name" }, "Variants"), h("strong", {}, Object.keys(newest.variants).length), h("span", { class: "note" }, Object.keys(newest.variants).join(", "))),
            h("div", { class: "tile" }, h("span", { class: "name" }, "From"), h("strong", {}, `round ${newest.round}`), h("span", { class: "note" }, link(path("runs", newest.run), newest.run)))),
          deployment ? h("div", {}, h("p", {}, deploymentBadge(deployment), ` v${deployment.version} on ${count(deployment.chosen)} of ${count(deployment.matching, "device")}, ${ago(deployment.created)} by ${deployment.operator}`), stateBar(deployment.states))
            : h("p", { class: "quiet" }, "Never deployed."));
      }));
  });
}

const STATES = [
  ["installed", "outcome-counted"], ["returned", "series-6"], ["accepted", "series-1"], ["pending", "outcome-missing"], ["returning", "outcome-late"],
  ["superseded", "outcome-abandoned"], ["declined", "outcome-declined"], ["failed", "outcome-rejected"], ["fell-back", "outcome-lost"],
];

export function deploymentBadge(deployment) {
  return badge({ active: "live", paused: "warn", "rolled-back": "idle" }[deployment.status] ?? "idle", deployment.status);
}

export function stateBar(states) {
  const known = new Map(STATES);
  const shown = [...STATES.map(([state]) => state), ...Object.keys(states).filter((state) => !known.has(state))].filter((state) => states[state]);
  const total = shown.reduce((sum, state) => sum + states[state], 0);
  return total > 0 && h("div", {}, h("div", { class: "stack", role: "img", "aria-label": shown.map((state) => `${states[state]} ${state}`).join(", ") },
    shown.map((state) => h("i", { "--c": `var(--${known.get(state) ?? "outcome-missing"})`, "--share": `${(100 * states[state]) / total}%` }))),
  h("p", { class: "legend" }, shown.map((state) => h("span", {}, h("i", { "--c": `var(--${known.get(state) ?? "outcome-missing"})` }), `${state} ${count(states[state])}`))));
}
