// One device: what it is, what it has, what became of its work.

import { get, repeat } from "./api.js";
import { action, confirm } from "./dialog.js";
import { badge, card, facts, h, link, path, replace } from "./dom.js";
import { connection, labels, outcomeBadge, shared } from "./fleet.js";
import { ago, bytes, count, duration, moment } from "./format.js";
import { OUTCOMES } from "./series.js";
import { Table } from "./table.js";

const STRIP = 120; // newest results drawn as a strip
const BYTES = /(^|_)(bytes|memory|disk)$/;

export async function show(root, name) {
  const base = `/api/devices/${encodeURIComponent(name)}`;
  let device = await get(base);
  const title = h("div", { class: "title" });
  const about = h("div", { class: "two" });
  const strip = h("div", {});
  const table = new Table("History", [
    { name: "time", label: "When", width: "120px", narrow: "82px", cell: (row) => h("span", { title: moment(row.time) }, ago(row.time)), sort: (row) => row.time },
    { name: "run", label: "Run", width: "180px", wide: true, cell: (row) => link(path("runs", row.run), row.run), sort: (row) => row.run },
    { name: "round", label: "Round", width: "84px", narrow: "58px", kind: "number", cell: (row) => (row.attempt > 1 ? `${row.round} (${row.attempt})` : row.round), sort: (row) => row.round },
    { name: "outcome", label: "Outcome", width: "112px", narrow: "86px", cell: (row) => outcomeBadge(row.outcome), sort: (row) => row.outcome },
    { name: "seconds", label: "Took", width: "84px", kind: "number", wide: true, cell: (row) => (row.seconds ? duration(row.seconds) : "–"), sort: (row) => row.seconds },
    { name: "reason", label: "Reason", cell: (row) => h("span", { title: row.reason }, row.reason) },
  ], { empty: "No finished rounds." });
  replace(root, title, about, card("History", strip, table.element));

  function draw() {
    replace(title, h("h1", {}, device.device), connection(device), h("div", { class: "actions" }, !device.revoked && action("RevokeDevice", "Revoke", revoke, "danger")));
    const own = Object.fromEntries(Object.entries(device.labels).filter(([label]) => !(label in device.operator_labels)));
    const [current] = device.activity;
    const platform = Object.entries(device.platform).map(([key, value]) => [key.replaceAll("_", " "), BYTES.test(key) && /^\d+$/.test(value) ? bytes(Number(value)) : value]);
    replace(about,
      card("Device", facts([
        ["last seen", device.online ? "now" : ago(device.last_seen)],
        ["revoked", device.revoked ? moment(device.revoked) : null],
        ["shared", shared(device)],
        ["enrolled", moment(device.enrolled)],
        ["operators' labels", Object.keys(device.operator_labels).length > 0 && labels(device.operator_labels)],
        ["own labels", Object.keys(own).length > 0 && labels(own)],
        ["now", current ? `${current.run}, round ${current.round}: ${Math.round(100 * current.fraction)} %` : device.inference_only ? "inference only" : device.online ? "idle" : null],
        ["rounds counted", count(device.rounds)],
        ["moonfed", device.release],
      ].map(([key, value]) => [key, value || null])), h("details", {}, h("summary", {}, "Platform"), facts(platform))),
      card("Models and certificates",
        device.models.length ? h("ul", { class: "reasons" }, device.models.map((one) => h("li", {}, link(path("models", one.name), one.name), ` ${one.installed ? `v${one.installed}` : "none"} `,
          one.target !== one.installed && one.target > 0 && `, to be v${one.target} `, badge(one.state === "installed" ? "good" : "idle", one.state), one.reason && ` ${one.reason}`))) : h("p", { class: "quiet" }, "No model is deployed to it."),
        h("h3", {}, "Certificates"),
        h("ul", { class: "reasons" }, device.certificates.map((one) => h("li", {}, h("code", { title: one.serial }, one.serial.slice(0, 16), "…"), " ",
          one.rejected ? [badge("bad", one.reason), ` ${moment(one.rejected)}`] : [badge("good", "valid"), ` until ${moment(one.expires).slice(0, 10)}`])))));
  }

  async function revoke() {
    const text = "All certificates of the device are rejected at once, and its connections end. It can return only with a join token for it.";
    const reply = await confirm({ title: `Revoke device ${device.device}?`, text, verb: "Revoke", path: `${base}/revoke`, danger: true });
    if (reply) { device = { ...device, ...reply }; draw(); }
  }

  draw();
  return repeat(5, async () => {
    device = await get(base);
    draw();
    const rows = (await get(`${base}/history`, { last: 500 })).rows;
    table.show(rows);
    const colours = new Map(OUTCOMES);
    const totals = OUTCOMES.map(([outcome]) => [outcome, rows.filter((row) => row.outcome === outcome).length]).filter(([, number]) => number);
    replace(strip, rows.length > 0 && [
      h("div", { class: "strip", role: "img", "aria-label": `Newest results, oldest first: ${totals.map(([outcome, number]) => `${number} ${outcome}`).join(", ")}` },
        rows.slice(0, STRIP).reverse().map((row) => h("i", { "--c": `var(--${colours.get(row.outcome) ?? "outcome-missing"})`, title: `${row.run}, round ${row.round}: ${row.outcome}` }))),
      h("p", { class: "legend" }, totals.map(([outcome, number]) => h("span", {}, h("i", { "--c": `var(--${colours.get(outcome)})` }), `${outcome} ${count(number)}`)))]);
  });
}
