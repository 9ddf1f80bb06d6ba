// Charts by uPlot, in the colours of the theme.

import { h } from "./dom.js";

const HEIGHT = 230;
const live = new Set();

addEventListener("themechange", () => { for (const chart of live) chart.draw(); });

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

class Chart {
  constructor(title, describe) {
    this.frame = h("div", { class: "chart", role: "img", "aria-label": title });
    this.quiet = h("p", { class: "quiet" }, "No figures yet.");
    this.element = h("section", { class: "card" }, h("h2", {}, title), this.frame, this.quiet);
    this.describe = describe;
    this.plot = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.frame);
    live.add(this);
  }

  // `series`: { label, colour, values, dash? }; all have the length of `x`.
  show(x, series) {
    this.x = x;
    this.series = series;
    this.draw();
  }

  draw() {
    if (!this.x) return;
    const filled = this.x.length > 0 && this.series.some((one) => one.values.some((value) => value !== null));
    this.quiet.hidden = filled;
    this.frame.hidden = !filled;
    if (!filled) return;
    const { options, data } = this.describe(this.x, this.series);
    const shape = JSON.stringify([this.series.map((one) => [one.label, one.colour]), document.documentElement.dataset.theme]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.shape = shape;
    this.plot = new uPlot({ width: this.frame.clientWidth || 600, height: HEIGHT, ...options }, data, this.frame);
  }

  resize() {
    const width = this.frame.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  end() {
    this.observer.disconnect();
    this.plot?.destroy();
    live.delete(this);
  }
}

function axes(values, label) {
  const stroke = colour("muted");
  const lines = { stroke: colour("line"), width: 1 };
  const font = "12px system-ui, sans-serif";
  return [
    { stroke, font, grid: { show: false }, ticks: lines, values: label, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] },
    { stroke, font, grid: lines, ticks: { show: false }, values: (_, splits) => splits.map(values), size: 56 },
  ];
}

export function lineChart(title, format) {
  return new Chart(title, (x, series) => ({
    data: [x, ...series.map((one) => one.values)],
    options: {
      cursor: { sync: { key: "rounds" }, points: { size: 7 } },
      scales: { x: { time: false } },
      axes: axes((value) => String(Number(value.toFixed(4)))),
      series: [
        { label: "round", value: (_, value) => value ?? "–" },
        ...series.map((one) => ({
          label: one.label, stroke: colour(one.colour), width: 2, dash: one.dash, spanGaps: true,
          points: { show: x.length < 40, size: 5, fill: colour("surface") },
          value: (_, value) => (value === null || value === undefined ? "–" : format(value)),
        })),
      ],
    },
  }));
}

// Stacked bars: the sums are drawn from the whole down to the first part, each over the one before.
export function stackChart(title, format, label) {
  return new Chart(title, (x, series) => {
    const sums = [];
    for (const one of series) {
      const below = sums.at(-1);
      sums.push(one.values.map((value, place) => (value ?? 0) + (below ? below[place] : 0)));
    }
    const order = series.map((_, place) => place).reverse();
    return {
      data: [x, ...order.map((place) => sums[place])],
      options: {
        cursor: { points: { show: false } },
        scales: { x: { time: false, range: (_, low, high) => [low - 0.6, high + 0.6] }, y: { range: (_, __, high) => [0, (high || 1) * 1.05] } },
        axes: axes(format, (_, splits) => splits.map((place) => (Number.isInteger(place) ? label(place) : ""))),
        series: [
          { label: "round", value: (_, place) => (place === null || place === undefined ? "–" : label(place)) },
          ...order.map((place) => ({
            label: series[place].label, fill: colour(series[place].colour), stroke: colour(series[place].colour), width: 0,
            paths: uPlot.paths.bars({ size: [0.8, 40] }), points: { show: false },
            value: (_, __, ___, index) => (index === null || index === undefined ? "–" : format(series[place].values[index] ?? 0)),
          })),
        ],
      },
    };
  });
}

export function chartGrid(...charts) {
  return h("div", { class: "charts" }, charts.map((chart) => chart.element));
}

