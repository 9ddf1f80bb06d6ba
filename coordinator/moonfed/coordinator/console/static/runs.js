// All runs, and the curves of those that are ticked.

import { get, repeat } from "./api.js";
import { chartGrid, lineChart } from "./charts.js";
import { badge, card, h, link, path, replace } from "./dom.js";
import { age, ago, count, fixed } from "./format.js";
import { curves } from "./series.js";
import { Table } from "./table.js";

const MOST = 6; // runs in one chart

export async function show(root) {
  const chosen = new Set();
  const known = new Map(); // the rounds of the ticked runs, by run
  let runs = [];
  const quality = lineChart("Metric by round", (value) => fixed(value, 3));
  const loss = lineChart("Loss by round", (value) => fixed(value, 3));
  const table = new Table("Runs", [
    { name: "compare", label: "Compare", width: "78px", cell: (row) => tick(row) },
    { name: "run", label: "Run", cell: (row) => link(path("runs", row.run), row.run), sort: (row) => row.run },
    { name: "status", label: "Status", width: "104px", cell: (row) => status(row.status), sort: (row) => row.status },
    { name: "round", label: "Rounds", width: "116px", kind: "number", cell: (row) => `${count(row.round)} of ${count(row.rounds)}`, sort: (row) => row.round },
    { name: "method", label: "Method", width: "110px", wide: true, cell: (row) => row.method, sort: (row) => row.method },
    { name: "eligible", label: "Eligible", width: "96px", kind: "number", wide: true, cell: (row) => count(row.eligible), sort: (row) => row.eligible },
    { name: "created", label: "Started", width: "116px", wide: true, cell: (row) => ago(row.created), sort: (row) => age(row.created) },
    { name: "now", label: "Now", wide: true, cell: (row) => now(row) },
  ], { empty: "No run has been started. Start one with: moonfed-coordinator run start BUNDLE" });

  function tick(row) {
    const change = async (event) => {
      if (event.target.checked) chosen.add(row.run);
      else chosen.delete(row.run);
      await draw();
    };
    return h("input", { type: "checkbox", checked: chosen.has(row.run), "aria-label": `Compare ${row.run}`, onchange: change });
  }

  async function draw() {
    const shown = [...chosen].slice(0, MOST);
    for (const run of shown) {
      const row = runs.find((one) => one.run === run);
      if (!row) continue;
      if (known.get(run)?.round !== row.round) {
        const [rounds, document] = await Promise.all([get(`/api/runs/${encodeURIComponent(run)}/rounds`), get(`/api/runs/${encodeURIComponent(run)}`)]);
        known.set(run, { round: row.round, metric: document.metric, rows: rounds.rows, initial: document.initial_metrics });
      }
    }
    const data = shown.filter((run) => known.has(run)).map((run) => ({ run, ...known.get(run) }));
    quality.show(...curves(data, "metric"));
    loss.show(...curves(data, "loss"));
  }

  replace(root, h("h1", {}, "Runs"), card(null, table.element), chartGrid(quality, loss));
  const first = { done: false };
  const end = repeat(3, async () => {
    runs = (await get("/api/runs")).rows.reverse();
    if (!first.done) {
      first.done = true;
      for (const row of runs.slice(0, 2)) chosen.add(row.run);
    }
    for (const run of [...chosen]) if (!runs.some((row) => row.run === run)) chosen.delete(run);
    table.show(runs);
    await draw();
  });
  return () => { end(); quality.end(); loss.end(); };
}

export function status(name) {
  const kinds = { running: "live", finished: "good", paused: "warn", stopped: "idle", failed: "bad" };
  return badge(kinds[name] ?? "idle", name);
}

function now(row) {
  if (row.reason) return row.reason;
  if (row.target) return `${count(row.reported)} of ${count(row.target, "update")}`;
  return row.waiting;
}
