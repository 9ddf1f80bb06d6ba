// Numbers, times and sizes as people read them.

const whole = new Intl.NumberFormat("en");

export function count(number, noun) {
  return noun ? `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}` : whole.format(number);
}

export function fixed(value, digits = 4) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)} %`;
}

// A value of a metric: a share in percent, others with about four digits that matter.
export function measured(value, metric, digits = 2) {
  if (value === null || value === undefined) return "–";
  if (metric.share) return percent(value, digits);
  const size = Math.abs(value);
  return size >= 1000 ? whole.format(Math.round(value)) : size >= 0.001 || size === 0 ? fixed(value) : value.toPrecision(3);
}

export function withUnit(value, metric, digits) {
  return metric.unit ? `${measured(value, metric, digits)} ${metric.unit}` : measured(value, metric, digits);
}

// A metric's name, with its unit.
export function named({ name, unit }) {
  return unit ? `${name} (${unit})` : name;
}

export function titled(metric) {
  const words = metric.name.replaceAll("_", " ");
  return named({ name: words[0].toUpperCase() + words.slice(1), unit: metric.unit });
}

export function bytes(value) {
  if (!value) return value === 0 ? "0 B" : "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(value) / 3), units.length - 1);
  const scaled = value / 1000 ** power;
  return `${scaled.toFixed(power && scaled < 100 ? 1 : 0)} ${units[power]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(0)} h`;
  return `${whole.format(Math.round(seconds / 86400))} d`;
}

// Times are texts such as 2026-11-22T18:00:00Z, which sort as they are; null means never.

export function age(time) {
  return time ? Math.max(0, (Date.now() - Date.parse(time)) / 1000) : Infinity;
}

export function ago(time) {
  return time ? `${duration(age(time))} ago` : "never";
}

export function moment(time) {
  return time ? time.replace("T", " ").replace("Z", " UTC") : "–";
}
