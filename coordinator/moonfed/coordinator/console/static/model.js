// One released model: its versions, its deployments, and the devices with the gate's results.

import { get, repeat } from "./api.js";
import { action, confirm, field } from "./dialog.js";
import { badge, card, h, link, path, replace } from "./dom.js";
import { age, ago, bytes, count, measured, moment } from "./format.js";
import { deploymentBadge, stateBar } from "./models.js";
import { Table } from "./table.js";

export async function show(root, name) {
  const base = `/api/models/${encodeURIComponent(name)}`;
  const title = h("div", { class: "title" });
  const current = h("div", {});
  const installed = h("div", {});
  let found = await get(base);
  const metric = () => found.rows.at(-1).metric;  // of all versions
  const versions = new Table("Versions", [
    { name: "version", label: "Version", width: "92px", narrow: "64px", cell: (row) => link(path("models", name, row.version), `v${row.version}`), sort: (row) => row.version },
    { name: "score", label: "Score", width: "104px", kind: "number", cell: (row) => measured(row.score, row.metric), sort: (row) => row.score },
    { name: "run", label: "Run", cell: (row) => [link(path("runs", row.run), row.run), `, round ${row.round}`], sort: (row) => row.run },
    { name: "variants", label: "Variants", wide: true, cell: (row) => Object.entries(row.variants).map(([variant, model]) => `${variant} (${bytes(model.size)})`).join(", ") },
    { name: "created", label: "Created", width: "190px", wide: true, cell: (row) => `${ago(row.created)} by ${row.operator}`, sort: (row) => age(row.created) },
    { name: "act", label: "", width: "104px", cell: (row) => action("DeployRelease", "Deploy", () => deploy(row)) },
  ]);
  const history = new Table("Deployments", [
    { name: "deployment", label: "No.", width: "64px", cell: (row) => row.number, sort: (row) => row.number },
    { name: "version", label: "Version", width: "120px", cell: (row) => `v${row.version} ${row.variant === "float32" ? "" : row.variant}`, sort: (row) => row.version },
    { name: "status", label: "Status", width: "116px", cell: (row) => deploymentBadge(row), sort: (row) => row.status },
    { name: "chosen", label: "Devices", width: "120px", kind: "number", cell: (row) => `${count(row.chosen)} of ${count(row.matching)}`, sort: (row) => row.chosen },
    { name: "gate", label: "Gate", width: "164px", wide: true, cell: (row) => `may lose ${metric().share ? count(row.max_drop, "point") : `${row.max_drop} %`}`, sort: (row) => row.max_drop },
    { name: "labels", label: "Labels", wide: true, cell: (row) => Object.entries(row.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "any device" },
    { name: "created", label: "Created", width: "190px", wide: true, cell: (row) => h("span", { title: moment(row.created) }, `${ago(row.created)} by ${row.operator}`), sort: (row) => age(row.created) },
  ], { empty: "Never deployed." });
  const devices = new Table("Devices", [
    { name: "device", label: "Device", width: "170px", narrow: "96px", cell: (row) => link(path("devices", row.device), row.device), sort: (row) => row.device },
    { name: "installed", label: "Installed", width: "116px", narrow: "98px", cell: (row) => (row.installed ? `v${row.installed}` : "none"), sort: (row) => row.installed },
    { name: "state", label: "State", width: "112px", cell: (row) => badge(kind(row.state), row.state), sort: (row) => row.state },
    { name: "gate", label: "Gate on the device", width: "230px", wide: true, cell: (row) => gate(row, metric()), sort: (row) => row.score ?? -1 },
    { name: "online", label: "Seen", width: "96px", wide: true, cell: (row) => (row.online ? badge("good", "online") : badge("idle", "offline")), sort: (row) => row.online },
    { name: "reported", label: "Reported", width: "112px", wide: true, cell: (row) => ago(row.reported), sort: (row) => age(row.reported) },
    { name: "reason", label: "Reason", cell: (row) => h("span", { title: row.reason }, row.reason) },
  ], { empty: "No deployment has chosen a device." });
  replace(root, title, h("div", { class: "two" }, current, installed), card("Versions", versions.element), card("Devices", devices.element), h("div", { class: "deployments" }, card("Deployments", history.element)));

  async function deploy(release) {
    const variant = h("select", {}, Object.keys(release.variants).map((one) => h("option", { value: one, selected: one === "float32" }, one)));
    const fields = [
      field("percent", "Percent of the devices", h("input", { type: "number", min: 1, max: 100, step: "any", value: 10, required: true }), Number),
      field("variant", "Variant", variant),
      field("labels", "Labels, such as site=berlin (empty: any device)", h("input", { type: "text", placeholder: "site=berlin, tier=gold" })),
      field("max_drop", "Gate: points (or percent) that a device may lose on its holdout", h("input", { type: "number", min: 0, max: 100, step: "any", value: 1, required: true }), Number),
    ];
    await confirm({ title: `Deploy version ${release.version} of ${name}?`, text: "The chosen devices fetch and verify it, and install it unless it fails the gate on their own holdout.", verb: "Deploy",
      path: `${base}/deploy`, document: { version: release.version }, fields });
    await read();
  }

  async function act(verb, word, text, options = {}) {
    await confirm({ title: `${word} the deployment of ${name}?`, text, verb: word, path: `${base}/${verb}`, ...options });
    await read();
  }

  function draw(rows) {
    const newest = found.deployments.filter((one) => one.status !== "rolled-back").at(-1);
    replace(title, h("h1", {}, name), newest && deploymentBadge(newest), newest && h("div", { class: "actions" },
      newest.percent < 100 && action("WidenDeployment", "Widen", () => act("widen", "Widen", `Deployment ${newest.number} covers ${newest.percent} % of the matching devices. Those chosen stay chosen.`,
        { fields: [field("percent", "Percent of the devices", h("input", { type: "number", min: newest.percent, max: 100, step: "any", value: 100, required: true }), Number)] })),
      newest.status === "paused" ? action("ResumeDeployment", "Resume", () => act("resume", "Resume", "Chosen devices that have yet to install the version are told to; those that declined it or failed are not."))
        : action("PauseDeployment", "Pause", () => act("pause", "Pause", "No further device begins to install the version until the deployment is resumed.")),
      action("RollBackDeployment", "Roll back", () => act("roll-back", "Roll back", `Deployment ${newest.number} of version ${newest.version} ends; its devices return to what they had before.${newest.stranded ? ` ${count(newest.stranded, "device")} had none and will predict with none.` : ""}`, { document: { deployment: newest.number }, danger: true }), "danger")));
    replace(current, card("Newest deployment", newest ? [h("p", {}, `Deployment ${newest.number}: v${newest.version} to ${count(newest.chosen)} of ${count(newest.matching, "device")} (${newest.percent} %), ${ago(newest.created)} by ${newest.operator}`), stateBar(newest.states)] : h("p", { class: "quiet" }, "No deployment is in effect.")));
    const counts = new Map();
    for (const row of rows) counts.set(row.installed, (counts.get(row.installed) ?? 0) + 1);
    const order = [...counts.entries()].sort(([a], [b]) => b - a);
    replace(installed, card("Devices by version", rows.length ? h("ul", { class: "versions" }, order.map(([version, number]) => h("li", {}, h("span", {}, version ? `v${version}` : "none"),
      h("span", { class: "meter" }, h("i", { "--share": `${(100 * number) / rows.length}%` })), h("span", { class: "number" }, count(number))))) : h("p", { class: "quiet" }, "No device yet.")));
    versions.show([...found.rows].reverse());
    history.show([...found.deployments].reverse());
    devices.show(rows);
  }

  async function read() {
    found = await get(base);
    draw((await get(`${base}/devices`)).rows);
  }
  return repeat(5, read);
}

function kind(state) {
  return { installed: "good", accepted: "live", pending: "idle", declined: "bad", failed: "bad", "fell-back": "bad", returning: "warn" }[state] ?? "idle";
}

// The device compared the version with its current one on its own holdout.
function gate(row, metric) {
  if (row.score === null) return row.state === "declined" ? badge("bad", "declined") : "not measured";
  const shown = (value) => measured(value, metric, 1);
  if (row.current_score === null) return `${shown(row.score)} on ${count(row.samples, "sample")}`;
  const change = (100 * (row.score - row.current_score)) / (metric.share ? 1 : row.current_score || 1);
  return [badge(row.state === "declined" ? "bad" : "good", `${change < 0 ? "−" : "+"}${Math.abs(change).toFixed(1)} ${metric.share ? "points" : "%"}`), ` ${shown(row.current_score)} → ${shown(row.score)}`];
}
