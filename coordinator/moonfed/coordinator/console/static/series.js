// The names and colours of what charts and maps show.

export const OUTCOMES = [
  ["counted", "outcome-counted"], ["incident", "outcome-incident"], ["abandoned", "outcome-abandoned"],
  ["late", "outcome-late"], ["rejected", "outcome-rejected"], ["declined", "outcome-declined"],
  ["lost", "outcome-lost"], ["missing", "outcome-missing"],
];
export const PHASES = [
  ["training", "series-1"], ["upload", "series-2"], ["waiting", "series-3"], ["reduction", "series-4"], ["commit", "series-5"],
];
export const SERIES = ["series-1", "series-2", "series-4", "series-3", "series-5", "series-6"];

export function stacked(rows, name, parts) {
  const known = new Set(parts.map(([part]) => part));
  const others = new Set(rows.flatMap((row) => Object.keys(row[name]).filter((part) => !known.has(part))));
  const shown = [...parts, ...[...others].map((part) => [part, "outcome-missing"])];
  return shown
    .map(([label, colour]) => ({ label, colour, values: rows.map((row) => row[name][label] ?? 0) }))
    .filter(({ values }) => values.some((value) => value > 0));
}

// The newest value of the run's metric, and loss: an evaluator's, or else the means over the devices' holdouts.
export function newestScore(rows, initial, metric) {
  for (const metrics of [...rows.map((row) => row.metrics).reverse(), initial]) {
    const found = score(metrics, metric);
    if (found.value !== undefined) return found;
  }
  return {};
}

export function score(metrics, { name }) {
  if (metrics[name] !== undefined) return { value: metrics[name], loss: metrics.loss, where: "" };
  return { value: metrics[`holdout_${name}`], loss: metrics.holdout_loss, where: "on the devices' holdouts" };
}

// The curves of the runs' metrics, or of their losses: { run, metric, initial, rows } each; the rounds are x.
export function curves(runs, measure) {
  const prefixOf = ({ metric }) => (measure === "loss" ? measure : metric.name);
  const rounds = [...new Set(runs.flatMap(({ rows, initial, metric }) => [...(Object.keys(initial).some((name) => belongs(name, prefixOf({ metric }))) ? [0] : []), ...rows.filter((row) => row.status === "committed").map((row) => row.round)]))];
  rounds.sort((a, b) => a - b);
  const series = [];
  runs.forEach(({ run, metric, initial, rows }, place) => {
    const prefix = prefixOf({ metric });
    const names = new Set([initial, ...rows.map((row) => row.metrics)].flatMap(Object.keys).filter((name) => belongs(name, prefix)));
    [...names].sort().forEach((name, number) => {
      const values = new Map(rows.filter((row) => row.status === "committed").map((row) => [row.round, row.metrics[name] ?? null]));
      if (initial[name] !== undefined) values.set(0, initial[name]);
      series.push({
        label: runs.length > 1 ? `${run} · ${name}` : name,
        colour: SERIES[(runs.length > 1 ? place : number) % SERIES.length],
        dash: runs.length > 1 && number ? [6, 4] : undefined,
        values: rounds.map((round) => values.get(round) ?? null),
      });
    });
  });
  return [rounds, series];
}

function belongs(name, prefix) {
  if (name === prefix || name === `holdout_${prefix}` || name.startsWith(`${prefix}@`)) return true;
  return prefix === "loss" && name === "train_loss";
}
