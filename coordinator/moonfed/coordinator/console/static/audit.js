// The audit trail: who changed or attempted what.

import { get, repeat } from "./api.js";
import { badge, card, h, replace } from "./dom.js";
import { choice } from "./fleet.js";
import { count, moment } from "./format.js";
import { Table } from "./table.js";

export async function show(root) {
  const name = h("input", { type: "search", placeholder: "Operator or device", "aria-label": "Operator or device", onchange: () => read() });
  const which = choice("Records", [["", "All"], ["true", "Denied only"]], () => read());
  const table = new Table("Audit trail", [
    { name: "time", label: "When", width: "186px", cell: (row) => moment(row.time), sort: (row) => row.number },
    { name: "name", label: "Who", width: "170px", cell: caller, sort: (row) => row.name },
    { name: "outcome", label: "Outcome", width: "100px", cell: (row) => badge({ done: "good", failed: "warn", denied: "bad", pending: "idle" }[row.outcome] ?? "idle", row.outcome), sort: (row) => row.outcome },
    { name: "what", label: "What", cell: (row) => { const text = what(row); return h("span", { title: text }, text); } },
    { name: "address", label: "From", width: "190px", wide: true, cell: (row) => row.address, sort: (row) => row.address },
  ], { empty: "No records match." });
  replace(root, h("h1", {}, "Audit"), card(null, h("div", { class: "filters" }, name, which.label), table.element));
  async function read() {
    const { rows } = await get("/api/audit", { last: 500, name: name.value.trim(), denied: which.input.value });
    table.show(rows.reverse());
  }
  return repeat(5, read);
}

function caller(row) {
  if (row.name) return `${row.name} (${row.role || "no certificate"})`;
  return row.role || (row.call ? "no certificate" : "other callers");
}

function what(row) {
  const text = [row.details || row.call, row.reason].filter(Boolean).join(": ");
  return row.count > 1 ? `${text} (${count(row.count, "call")})` : text;
}
