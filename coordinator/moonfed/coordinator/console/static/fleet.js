// All devices, filtered as one types.

import { get, repeat } from "./api.js";
import { badge, card, h, link, path, replace } from "./dom.js";
import { ago, count } from "./format.js";
import { Table } from "./table.js";

export async function show(root) {
  let rows = [];
  const runs = (await get("/api/runs")).rows.map((row) => row.run).reverse();
  const search = h("input", { type: "search", placeholder: "Name or label, such as site=berlin", "aria-label": "Name or label", oninput: () => filter() });
  const online = choice("Connection", [["", "Any"], ["online", "Online"], ["offline", "Offline"], ["shared", "Shared"], ["revoked", "Revoked"]], () => filter());
  const release = choice("moonfed", [["", "Any release"]], () => filter());
  const model = choice("Model", [["", "Any model"]], () => filter());
  const run = choice("Eligible for", [["", "Any run"], ...runs.slice(0, 50).map((name) => [name, name])], () => read());
  const eligible = choice("Eligibility", [["", "All"], ["yes", "Not known to be ineligible"], ["no", "Not eligible"]], () => filter());
  eligible.label.hidden = true;
  const number = h("p", { class: "quiet", role: "status" });
  const table = new Table("Devices", [
    { name: "device", label: "Device", width: "150px", narrow: "112px", cell: (row) => link(path("devices", row.device), row.device), sort: (row) => row.device },
    { name: "state", label: "Status", width: "92px", cell: (row) => connection(row), sort: (row) => connectionName(row) },
    { name: "labels", label: "Labels", width: "190px", wide: true, cell: (row) => labels(row.labels), sort: (row) => labelText(row.labels) },
    { name: "activity", label: "Now", width: "176px", wide: true, cell: (row) => activity(row), sort: (row) => row.activity[0]?.fraction ?? -1 },
    { name: "models", label: "Model", width: "104px", wide: true, cell: (row) => modelText(row.models) || "–", sort: (row) => modelText(row.models) },
    { name: "release", label: "moonfed", width: "78px", wide: true, cell: (row) => row.release || "–", sort: (row) => row.release },
    { name: "rounds", label: "Rounds", width: "84px", kind: "number", wide: true, cell: (row) => count(row.rounds), sort: (row) => row.rounds },
    { name: "last", label: "Last result", cell: (row) => lastResult(row, run.input.value), sort: (row) => row.ineligible || row.last_result?.outcome || "" },
  ], { empty: "No device matches." });
  replace(root, h("div", { class: "title" }, h("h1", {}, "Fleet"), tabs("devices")),
    card(null, h("div", { class: "filters" }, search, online.label, release.label, model.label, run.label, eligible.label), number, table.element));

  async function read() {
    rows = (await get("/api/devices", { run: run.input.value })).rows;
    eligible.label.hidden = !run.input.value;
    options(release.input, "Any release", rows.map((row) => row.release).filter(Boolean));
    options(model.input, "Any model", rows.flatMap((row) => Object.entries(row.models).map(([name, version]) => `${name} v${version}`)));
    filter();
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => {
      if (online.input.value && connectionName(row) !== online.input.value) return false;
      if (release.input.value && row.release !== release.input.value) return false;
      if (model.input.value && !modelText(row.models).split(", ").includes(model.input.value)) return false;
      if (run.input.value && eligible.input.value && (eligible.input.value === "no") !== Boolean(row.ineligible)) return false;
      const text = `${row.device} ${labelText(row.labels)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const connected = found.filter((row) => row.online).length;
    replace(number, `${count(found.length)} of ${count(rows.length, "device")}, ${count(connected)} online`);
    table.show(found);
  }

  return repeat(5, read);
}

export function tabs(current) {
  return h("nav", { class: "tabs", "aria-label": "Views" },
    h("a", { href: "/fleet", "aria-current": current === "devices" ? "page" : undefined }, "Devices"),
    h("a", { href: "/fleet/map", "aria-current": current === "map" ? "page" : undefined }, "Recent rounds"));
}

export function choice(label, entries, onchange) {
  const input = h("select", { onchange }, entries.map(([value, text]) => h("option", { value }, text)));
  return { input, label: h("label", { class: "choice" }, h("span", {}, label), input) };
}

function options(select, any, values) {
  const wanted = [...new Set(values)].sort();
  if (wanted.length === select.options.length - 1 && wanted.every((value, place) => select.options[place + 1].value === value)) return;
  const chosen = select.value;
  replace(select, h("option", { value: "" }, any), wanted.map((value) => h("option", { value, selected: value === chosen }, value)));
}

export function connectionName(row) {
  return row.revoked ? "revoked" : row.shared_by.length ? "shared" : row.online ? "online" : "offline";
}

export function connection(row) {
  const name = connectionName(row);
  return h("span", { title: shared(row) || undefined }, badge({ online: "good", offline: "idle", shared: "bad", revoked: "bad" }[name], name));
}

// What the operator should know of an identity that several machines use in turns; empty if one does.
export function shared(row) {
  return row.shared_by.length ? `Several machines use this identity in turns, at ${row.shared_by.join(" and ")}: one is a copy of the other. Revoke it, then enrol each again, with an empty state directory and a name of its own.` : "";
}

export function labelText(labels) {
  return Object.entries(labels).sort().map(([name, value]) => `${name}=${value}`).join(" ");
}

export function labels(found) {
  return h("span", { class: "labels", title: labelText(found) }, Object.entries(found).sort().map(([name, value]) => [h("span", { class: "label" }, `${name}=${value}`), " "]));
}

function modelText(models) {
  return Object.entries(models).sort().map(([name, version]) => `${name} v${version}`).join(", ");
}

function activity(row) {
  const [current] = row.activity;
  if (row.inference_only) return "inference only";
  if (current) return `${current.run} ${current.round}: ${Math.round(100 * current.fraction)} %`;
  return row.online ? "idle" : row.last_seen ? `seen ${ago(row.last_seen)}` : "–";
}

function lastResult(row, run) {
  if (run) return row.ineligible ? h("span", { title: row.ineligible }, badge("warn", "not eligible"), " ", row.ineligible) : "not known to be ineligible";
  if (!row.last_result) return "–";
  const { outcome, reason, round } = row.last_result;
  return h("span", { title: reason || undefined }, outcomeBadge(outcome), ` round ${round}${reason ? `: ${reason}` : ""}`);
}

export function outcomeBadge(outcome) {
  const kinds = { counted: "good", incident: "warn", abandoned: "idle", late: "warn", rejected: "bad", declined: "bad", lost: "bad", missing: "idle" };
  return badge(kinds[outcome] ?? "idle", outcome);
}
