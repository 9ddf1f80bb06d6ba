// One run: its open round, its curves, its rounds, its evaluations.

import { get } from "./api.js";
import { chartGrid, lineChart, stackChart } from "./charts.js";
import { confusion, classTable } from "./confusion.js";
import { action, confirm, notice } from "./dialog.js";
import { badge, card, facts, h, link, path, replace } from "./dom.js";
import { ago, bytes, count, duration, fixed, measured, moment, percent, titled, withUnit } from "./format.js";
import { OpenRound } from "./open_round.js";
import { status } from "./runs.js";
import { OUTCOMES, PHASES, curves, newestScore, score, stacked } from "./series.js";
import { settingFacts } from "./settings.js";
import { Table } from "./table.js";

const BARS = 100; // newest attempts in the bar charts
const NEWEST = 20; // attempts that are read when one has ended

export async function show(root, name) {
  const base = `/api/runs/${encodeURIComponent(name)}`;
  let run = await get(base);
  let rows = [];
  const title = h("div", { class: "title" });
  const why = h("div", {});
  const summary = h("div", {});
  const absence = h("div", {}), privacy = h("div", {}), eligibility = h("div", {}), clipped = h("div", {});
  const evaluations = h("div", {});
  const open = new OpenRound();
  const { metric } = run;
  const quality = lineChart(`${titled(metric)} by round, ${metric.maximise ? "higher" : "lower"} is better`, (value) => measured(value, metric));
  const loss = lineChart("Loss by round", (value) => fixed(value, 3));
  const label = (place) => (rows[place - 1] ? String(rows[place - 1].round) : "");
  const phases = stackChart("Seconds by phase", duration, label);
  const outcomes = stackChart("Updates by outcome", (value) => count(value), label);
  const traffic = stackChart("Bytes", bytes, label);
  const charts = [quality, loss, phases, outcomes, traffic];
  const table = roundTable(name, metric);
  const settings = h("details", { class: "card" }, h("summary", {}, "Settings, times in seconds"), facts(settingFacts(run.settings)),
    facts([["manifest", run.manifest.sha256], ["newest model", `${run.model.sha256} (${bytes(run.model.size)})`]]));
  replace(root, title, why, absence, summary, open.element, chartGrid(...charts), card("Rounds", table.element), privacy, eligibility, clipped, evaluations, settings);

  function drawRun() {
    const ended = ["finished", "stopped", "failed"].includes(run.status);
    replace(title, h("h1", {}, run.run), status(run.status), !ended && h("div", { class: "actions" },
      run.status === "paused"
        ? action("ResumeRun", "Resume", () => act("resume", "Resume", "Devices are assigned work again."))
        : action("PauseRun", "Pause", () => act("pause", "Pause", "Devices finish their current work, which counts, and get no more until the run is resumed.")),
      action("StopRun", "Stop", () => act("stop", "Stop", `The run ends for good after ${run.round} of ${count(run.settings.rounds, "round")}; its models are kept.`, true), "danger")));
    const sentence = run.reason || (open.round ? "" : run.waiting);
    replace(why, sentence && h("p", { class: run.reason ? "problem" : "waiting" }, sentence));
    const newest = rows.findLast((row) => row.status === "committed");
    const metrics = newestScore(rows, run.initial_metrics, metric);
    const sum = (field) => rows.reduce((total, row) => total + row[field], 0);
    replace(summary, h("div", { class: "tiles" },
      tile("Rounds", `${count(run.round)} of ${count(run.settings.rounds)}`, h("progress", { max: run.settings.rounds, value: run.round, "aria-label": "Rounds" })),
      tile(titled(metric), measured(metrics.value, metric, 1), metrics.where), tile("Loss", fixed(metrics.loss, 3), metrics.where),
      tile("Eligible online", count(run.eligible), run.checking ? `${count(run.checking)} still checking` : ""),
      tile("Last round", newest ? duration(newest.seconds) : "–"),
      tile("Received", bytes(sum("received_bytes")), `${bytes(sum("sent_bytes"))} sent`)),
    h("p", { class: "quiet" }, `${run.method}, started ${ago(run.created)} (${moment(run.created)})`));
    const absent = run.absent_classes.join(", ");
    replace(absence, absent && h("p", { class: "waiting" }, `No eligible device has samples of: ${absent}`));
    replace(privacy, run.privacy && privacyCard(run.privacy));
    replace(eligibility, run.ineligible.length > 0 && card("Devices that are not eligible", h("ul", { class: "reasons" },
      run.ineligible.map(({ reason, devices }) => h("li", {}, badge("warn", count(devices.length)), " ", reason, ": ", names(devices))))));
    const worst = Object.entries(run.clipped).sort(([, one], [, other]) => other - one);
    replace(clipped, worst.length > 0 && card("Devices that were clipped repeatedly", h("ul", { class: "reasons" },
      worst.map(([device, number]) => h("li", {}, badge("warn", count(number)), " rounds in a row: ", link(path("devices", device), device))))));
  }

  function drawRounds() {
    const one = [{ run: run.run, metric, initial: run.initial_metrics, rows }];
    quality.show(...curves(one, "metric"));
    loss.show(...curves(one, "loss"));
    const first = Math.max(0, rows.length - BARS);
    const newest = rows.slice(first);
    const places = newest.map((_, place) => first + place + 1);
    phases.show(places, stacked(newest, "phases", PHASES));
    outcomes.show(places, stacked(newest, "outcomes", OUTCOMES));
    traffic.show(places, [
      { label: "received", colour: "series-2", values: newest.map((row) => row.received_bytes) },
      { label: "sent", colour: "series-1", values: newest.map((row) => row.sent_bytes) },
    ].filter(({ values }) => values.some((value) => value > 0)));
    table.show([...rows].reverse());
  }

  async function act(verb, word, text, danger = false) {
    const reply = await confirm({ title: `${word} run ${run.run}?`, text, verb: word, path: `${base}/${verb}`, danger });
    if (reply) { run = reply; drawRun(); }
  }

  async function readRounds() {
    rows = (await get(`${base}/rounds`)).rows;
    drawRun();
    drawRounds();
  }

  // Reads the newest rounds, unless so many have ended that they do not reach back to those that are known.
  async function readNewRounds() {
    const found = (await get(`${base}/rounds`, { last: NEWEST })).rows;
    const key = (row) => `${row.round}.${row.attempt}`;
    const fresh = new Set(found.map(key));
    if (found.length === NEWEST && !(rows.length && fresh.has(key(rows.at(-1))))) return readRounds();
    rows = [...rows.filter((row) => !fresh.has(key(row))), ...found];
    if (run.privacy) run = await get(base); // what the new rounds have spent
    drawRun();
    drawRounds();
  }

  async function readEvaluations() {
    const found = (await get(`${base}/evaluations`)).rows;
    replace(evaluations, found.map((one) => (one.score ? testSet(one) : onDevices(one.on_devices))));
  }

  open.restart(run);
  drawRun();
  await readRounds();
  await readEvaluations();

  let due = null; // the next reading; rounds that end until then wait for it
  let scored = false;
  let again = false;
  let left = false;
  const refresh = (events) => {
    scored ||= events.some((event) => event.event === "metrics_recorded");
    again = due !== null;
    due ??= setTimeout(async () => {
      const wanted = scored;
      scored = again = false;
      try {
        await readNewRounds();
        if (wanted) await readEvaluations();
      } catch (error) { notice(error.message, "bad"); }
      due = null;
      if (again && !left) refresh([]);
    }, 300);
  };
  const source = new EventSource(`${base}/live`);
  let interrupted = false;
  source.addEventListener("snapshot", (event) => {
    run = JSON.parse(event.data);
    if (interrupted) { interrupted = false; readRounds().catch(() => {}); }
    open.restart(run);
    drawRun();
    if (["finished", "stopped", "failed"].includes(run.status)) source.close();
  });
  source.addEventListener("events", (message) => {
    const { events, progress } = JSON.parse(message.data);
    for (const event of events) {
      if (event.event === "waiting") run.waiting = event.reason;
      else if (event.event === "round_opened") run.waiting = "";
      else if (event.event === "paused") run.status = "paused";
      else if (event.event === "resumed") run.status = "running";
      else if (event.event === "round_committed") run.round = event.round;
    }
    open.apply(events, progress);
    if (events.length) drawRun();
    if (events.some((event) => ["round_committed", "round_abandoned", "metrics_recorded"].includes(event.event))) refresh(events);
  });
  source.addEventListener("interrupted", (event) => {
    interrupted = true;
    replace(why, h("p", { class: "problem" }, `${JSON.parse(event.data).reason}; this page reconnects by itself.`));
  });
  source.addEventListener("failed", (event) => { source.close(); notice(JSON.parse(event.data).reason, "bad"); });
  return () => { left = true; source.close(); clearTimeout(due); open.end(); for (const chart of charts) chart.end(); };
}

function tile(name, value, note) {
  return h("div", { class: "tile" }, h("span", { class: "name" }, name), h("strong", {}, value), note && h("span", { class: "note" }, note));
}

function names(devices) {
  const shown = devices.slice(0, 5).map((device, place) => [place ? ", " : "", link(path("devices", device), device)]);
  return devices.length > 5 ? [shown, ` and ${count(devices.length - 5)} more`] : shown;
}

function roundTable(run, metric) {
  const scored = (row, name, shown) => {
    const found = score(row.metrics, metric);
    return found.where ? h("span", { title: found.where }, shown(found[name])) : shown(found[name]);
  };
  return new Table("Rounds", [
    { name: "round", label: "Round", width: "92px", kind: "number", sort: (row) => row.round * 1000 + row.attempt,
      cell: (row) => (row.attempt > 1 || row.status !== "committed" ? `${row.round} (${row.attempt})` : row.round) },
    { name: "status", label: "Status", width: "112px", cell: (row) => badge(row.status === "committed" ? "good" : "bad", row.status), sort: (row) => row.status },
    { name: "value", label: titled(metric), width: "112px", kind: "number", cell: (row) => scored(row, "value", (value) => measured(value, metric)), sort: (row) => score(row.metrics, metric).value ?? null },
    { name: "loss", label: "Loss", width: "88px", kind: "number", wide: true, cell: (row) => scored(row, "loss", fixed), sort: (row) => score(row.metrics, metric).loss ?? null },
    { name: "updates", label: "Updates", width: "92px", kind: "number", cell: (row) => `${row.updates} of ${row.counted + row.missing}`, sort: (row) => row.updates },
    { name: "incidents", label: "Incidents", width: "96px", kind: "number", wide: true, cell: (row) => row.incidents || "–", sort: (row) => row.incidents },
    { name: "seconds", label: "Took", width: "84px", kind: "number", wide: true, cell: (row) => duration(row.seconds), sort: (row) => row.seconds },
    { name: "missing", label: "Devices", wide: true, cell: (row) => h("button", { class: "plain link", onclick: () => showRound(run, row) }, row.reason || summary(row)) },
  ], { empty: "No round has ended yet." });
}

function summary(row) {
  const parts = OUTCOMES.filter(([outcome]) => row.outcomes[outcome]).map(([outcome]) => `${row.outcomes[outcome]} ${outcome}`);
  return parts.join(", ") || (row.missing ? `${row.missing} missing` : "all delivered");
}

async function showRound(run, row) {
  let found;
  try {
    found = await get(`/api/runs/${encodeURIComponent(run)}/rounds/${row.round}/${row.attempt}`);
  } catch (error) {
    notice(error.message, "bad");
    return;
  }
  const list = (title, devices) => devices.length > 0 && [h("h3", {}, `${title} (${count(devices.length)})`),
    h("p", { class: "names" }, devices.map((device, place) => [place ? ", " : "", link(path("devices", device), device)]))];
  const dialog = h("dialog", { onclose: () => dialog.remove(), onclick: (event) => { if (event.target.closest("a")) dialog.close(); } },
    h("h2", {}, `Round ${row.round}, attempt ${row.attempt}`), row.reason && h("p", { class: "problem" }, row.reason),
    list("Counted", found.counted), list("Without an update in the model", found.missing),
    found.incidents.length > 0 && [h("h3", {}, "Incidents"), h("ul", {}, found.incidents.map((one) => h("li", {}, link(path("devices", one.device), one.device), ": ", one.description)))],
    h("div", { class: "buttons" }, h("button", { onclick: () => dialog.close() }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

function scoreFacts({ metric, metrics, calibration_error: error }) {
  const others = Object.keys(metrics).filter((name) => name !== metric.name && name !== "loss").sort();
  const shown = [[metric.name, withUnit(metrics[metric.name], metric)], ...[...others, "loss"].filter((name) => name in metrics && name !== metric.name)
    .map((name) => [name, withUnit(metrics[name], { unit: name === "mae" ? metric.unit : "" })])];
  return (error === null ? shown : [...shown, ["calibration error", fixed(error)]]).map(([name, value]) => [name.replaceAll("_", " "), value]);
}

function testSet({ round, score: found }) {
  return h("div", { class: "two" },
    card(`Test set ${found.test_set}, model of round ${round}`,
      facts([...scoreFacts(found), ["samples", count(found.samples)]]),
      found.classes.length > 0 && classTable(found.classes)),
    found.confusion.length > 0 && card("Confusion matrix", confusion(found.classes.map((one) => one.name), found.confusion)));
}

function privacyCard(spent) {
  return card("Privacy", facts([
    ["epsilon", `${fixed(spent.epsilon, 2)} of ${Number(spent.budget)}, at delta ${spent.delta}`],
    ["unit", "a device"],
    ["each round draws", `${percent(spent.sampling_rate, 2)} of the devices`],
    ["noise multiplier", fixed(spent.noise_multiplier, 3)],
    ["clip of the next round", fixed(spent.clip_norm, 4)],
    ["rounds charged", `${count(spent.releases)} of ${count(spent.rounds)}`],
    ["released without noise", spent.unprotected.join(", ") || "nothing"],
    ["not hidden", "updates, from the operator of the coordinator"],
  ]));
}

function onDevices(found) {
  const shown = (value) => withUnit(value, found.metric, 1), word = found.metric.name.replaceAll("_", " ");
  return card(`Evaluation on devices, model of round ${found.round}`,
    found.scores > 0 ? facts([["devices", count(found.scores)], [`median ${word}`, shown(found.median)], ["worst decile", shown(found.worst_decile)],
      ["worse than the device's own", `${count(found.worse)} of ${count(found.compared)}`]]) : h("p", { class: "quiet" }, "No device has scored it yet."),
    found.worst_scores.length > 0 && [h("h3", {}, `${found.metric.maximise ? "Lowest" : "Highest"} ${word}`), h("ul", { class: "reasons" }, found.worst_scores.map((one) => h("li", {},
      link(path("devices", one.device), one.device), `: ${shown(one.score)}${one.local_score === null ? "" : `, its own model ${shown(one.local_score)}`}, on ${count(one.samples, "sample")}`)))],
    found.waiting > 0 && h("p", {}, `${count(found.waiting)} ${found.closed ? "did not answer" : "yet to answer"}`),
    found.skipped.length > 0 && h("ul", { class: "reasons" }, found.skipped.map(({ reason, devices }) => h("li", {}, badge("idle", count(devices)), " ", reason))));
}
