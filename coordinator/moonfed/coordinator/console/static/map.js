// The map of recent rounds: a row for each device, a column for each attempt. Only what is visible is drawn.

import { get, repeat } from "./api.js";
import { colour } from "./charts.js";
import { card, go, h, path, replace } from "./dom.js";
import { count, moment } from "./format.js";
import { choice, outcomeBadge, tabs } from "./fleet.js";
import { OUTCOMES } from "./series.js";

const ROW = 20; // pixels
const NAME = 132;
const NARROW = 92; // of names on a phone
const HEAD = 22;

export async function show(root) {
  const runs = (await get("/api/runs")).rows.reverse();
  const wanted = new URLSearchParams(location.search).get("run");
  const run = choice("Run", runs.map((row) => [row.run, row.run]), () => read());
  if (wanted) run.input.value = wanted;
  const order = choice("Sort by", [["trouble", "most rounds not counted"], ["name", "name"]], () => draw());
  const legend = h("p", { class: "legend" }, OUTCOMES.map(([name, drawn]) => h("span", {}, h("i", { "--c": `var(--${drawn})` }), name)));
  const canvas = h("canvas", { role: "img" });
  const tip = h("div", { class: "tip", hidden: true });
  const area = h("div", { class: "area" });
  const view = h("div", { class: "map", tabindex: "0", role: "region", "aria-label": "Outcomes by device and round" }, area, canvas);
  const summary = h("p", { class: "quiet", role: "status" });
  replace(root, h("div", { class: "title" }, h("h1", {}, "Fleet"), tabs("map")),
    card(null, h("div", { class: "filters" }, run.label, order.label), legend, summary, h("div", { class: "mapframe" }, view, tip)));
  if (!runs.length) { replace(summary, "No run has been started."); return undefined; }

  let rounds = [];
  let devices = [];
  let cells = new Map(); // outcomes by device, one for each attempt

  async function read() {
    rounds = (await get(`/api/runs/${encodeURIComponent(run.input.value)}/outcomes`, { last: 100 })).rows;
    cells = new Map();
    rounds.forEach((round, column) => {
      for (const [outcome, names] of Object.entries(round.outcomes)) {
        for (const name of names) {
          if (!cells.has(name)) cells.set(name, new Array(rounds.length).fill(null));
          cells.get(name)[column] = outcome;
        }
      }
    });
    draw();
  }

  function draw() {
    const missed = (name) => cells.get(name).filter((outcome) => outcome && outcome !== "counted").length;
    devices = [...cells.keys()].sort();
    if (order.input.value === "trouble") {
      const keyed = devices.map((name) => [missed(name), name]);
      keyed.sort((a, b) => b[0] - a[0] || (a[1] < b[1] ? -1 : 1));
      devices = keyed.map(([, name]) => name);
    }
    area.style.height = `${HEAD + devices.length * ROW}px`;
    const totals = OUTCOMES.map(([outcome]) => [outcome, rounds.reduce((sum, round) => sum + (round.outcomes[outcome]?.length ?? 0), 0)]).filter(([, number]) => number);
    replace(summary, rounds.length ? `${count(devices.length, "device")}, newest ${count(rounds.length, "attempt")}: ${totals.map(([name, number]) => `${count(number)} ${name}`).join(", ")}` : "No round of this run has ended yet.");
    canvas.setAttribute("aria-label", summary.textContent);
    paint();
  }

  function paint() {
    const width = view.clientWidth;
    const height = view.clientHeight;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    canvas.style.transform = `translateY(${view.scrollTop}px)`;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const drawn = new Map(OUTCOMES.map(([outcome, name]) => [outcome, colour(name)]));
    const [text, muted, surface] = [colour("text"), colour("muted"), colour("surface")];
    const { left, cell } = scale(width);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const first = Math.max(0, Math.floor((view.scrollTop - HEAD) / ROW));
    const last = Math.min(devices.length, Math.ceil((view.scrollTop + height - HEAD) / ROW));
    for (let row = first; row < last; row++) {
      const top = HEAD + row * ROW - view.scrollTop;
      context.fillStyle = text;
      context.fillText(devices[row], 2, top + ROW / 2, left - 8);
      const outcomes = cells.get(devices[row]);
      for (let column = 0; column < outcomes.length; column++) {
        if (!outcomes[column]) continue;
        context.fillStyle = drawn.get(outcomes[column]) ?? muted;
        context.fillRect(left + column * cell, top + 2, Math.max(1, cell - (cell > 4 ? 1.5 : 0.3)), ROW - 4);
      }
    }
    context.fillStyle = surface;
    context.fillRect(0, 0, width, HEAD);
    context.fillStyle = muted;
    context.fillText("round", 2, HEAD / 2);
    let free = -1;
    for (let column = 0; column < rounds.length; column++) {
      const x = left + column * cell;
      if (x < free || (rounds[column].round % 5 && rounds.length > 12)) continue;
      context.fillText(String(rounds[column].round), x, HEAD / 2);
      free = x + 30;
    }
  }

  function scale(width) {
    const left = width < 500 ? NARROW : NAME;
    return { left, cell: rounds.length ? Math.min(26, (width - left) / rounds.length) : 1 };
  }

  function at(event) {
    const box = view.getBoundingClientRect();
    const { left, cell } = scale(view.clientWidth);
    const x = event.clientX - box.left;
    const row = Math.floor((event.clientY - box.top + view.scrollTop - HEAD) / ROW);
    const column = Math.floor((x - left) / cell);
    return { name: devices[row], round: rounds[column], outcome: cells.get(devices[row])?.[column], x, y: event.clientY - box.top };
  }

  const point = (event) => {
    const { name, round, outcome, x, y } = at(event);
    tip.hidden = !(name && round && outcome);
    if (tip.hidden) return;
    replace(tip, h("strong", {}, name), ` · round ${round.round}${round.attempt > 1 ? `, attempt ${round.attempt}` : ""}`, h("br"), outcomeBadge(outcome), h("br"), h("span", { class: "quiet" }, moment(round.time)));
    tip.style.left = `${Math.min(x + 14, view.clientWidth - 210)}px`;
    tip.style.top = `${y + 14}px`;
  };
  view.addEventListener("scroll", () => requestAnimationFrame(paint), { passive: true });
  view.addEventListener("pointermove", point);
  view.addEventListener("pointerleave", () => { tip.hidden = true; });
  view.addEventListener("click", (event) => { const { name } = at(event); if (name) go(path("devices", name)); });
  const observer = new ResizeObserver(paint);
  observer.observe(view);
  addEventListener("themechange", paint);
  const end = repeat(5, read);
  return () => { end(); observer.disconnect(); removeEventListener("themechange", paint); };
}
