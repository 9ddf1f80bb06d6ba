// The open round: a bar for each device of the cohort, and why a device delivers nothing.

import { badge, card, h, link, path, replace } from "./dom.js";
import { count, duration } from "./format.js";
import { Table } from "./table.js";

const STATES = {
  rejected: ["bad", "rejected"], declined: ["bad", "declined"], lost: ["bad", "lost"], left: ["warn", "left"],
  training: ["live", "training"], waiting: ["idle", "assigned"], reported: ["good", "delivered"],
};
const ORDER = Object.keys(STATES);

export class OpenRound {
  constructor() {
    this.round = null;
    this.head = h("div", {});
    this.table = new Table("Devices of the open round", [
      { name: "device", label: "Device", width: "190px", narrow: "104px", cell: (row) => link(path("devices", row.device), row.device), sort: (row) => row.device },
      { name: "state", label: "State", width: "108px", narrow: "90px", cell: (row) => badge(...STATES[row.state]), sort: (row) => ORDER.indexOf(row.state) },
      { name: "progress", label: "Progress or reason", cell: (row) => (row.reason ? h("span", { title: row.reason }, row.reason) : bar(row)), sort: (row) => row.fraction },
    ], { classes: "short" });
    this.element = card("Open round", this.head, this.table.element);
    this.clock = setInterval(() => this.drawHead(), 1000);
    this.due = false;
  }

  restart(run) {
    this.round = run.open_round && { ...run.open_round, opened: Date.now() / 1000 - run.open_round.seconds };
    this.rows = new Map();
    if (this.round) {
      for (const device of this.round.cohort) this.rows.set(device, { device, state: "waiting", fraction: this.round.progress[device] ?? 0, reason: "" });
      for (const [device, fraction] of Object.entries(this.round.progress)) this.set(device, "training", "", fraction);
      for (const state of ["left", "lost", "declined", "rejected", "reported"]) {
        for (const device of this.round[state]) this.set(device, state, this.round.reasons[device] || HINTS[state] || "");
      }
    }
    this.draw();
  }

  apply(events, progress) {
    for (const event of events) this.follow(event);
    for (const [device, fraction] of Object.entries(progress)) {
      if (["waiting", "training", "left", "lost"].includes(this.rows?.get(device)?.state)) this.set(device, "training", "", fraction);
    }
    if (!this.due) {
      this.due = true;
      requestAnimationFrame(() => { this.due = false; this.draw(); });
    }
  }

  follow(event) {
    switch (event.event) {
      case "round_opened":
        this.round = { round: event.round, attempt: event.attempt, target: null, opened: Date.now() / 1000, cohort: event.cohort };
        this.rows = new Map(this.round.cohort.map((device) => [device, { device, state: "waiting", fraction: 0, reason: "" }]));
        break;
      case "devices_joined":
        for (const device of event.devices) this.rows.set(device, { device, state: "waiting", fraction: 0, reason: "replaces another device" });
        break;
      case "update_received": this.set(event.device, "reported", "", 1); break;
      case "update_rejected": this.set(event.device, "rejected", event.reason); break;
      case "device_declined": this.set(event.device, "declined", event.reason); break;
      case "device_lost": this.set(event.device, "lost", HINTS.lost); break;
      case "device_left": this.set(event.device, "left", HINTS.left); break;
      case "round_committed": case "round_abandoned": case "ended":
        this.round = null;
        this.rows = new Map();
        break;
    }
  }

  set(device, state, reason = "", fraction = undefined) {
    const row = this.rows?.get(device);
    if (row) Object.assign(row, { state, reason, fraction: state === "reported" ? 1 : fraction ?? row.fraction });
  }

  draw() {
    this.element.hidden = !this.round;
    if (!this.round) return;
    const rows = [...this.rows.values()];
    rows.sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.fraction - a.fraction || (a.device < b.device ? -1 : 1));
    this.table.show(rows);
    this.drawHead();
  }

  drawHead() {
    if (!this.round) return;
    const rows = [...this.rows.values()];
    const reported = rows.filter((row) => row.state === "reported").length;
    const wanted = this.round.target || rows.length;
    const parts = ORDER.map((state) => [state, rows.filter((row) => row.state === state).length]).filter(([, number]) => number);
    replace(this.head, h("p", { class: "opened" }, h("strong", {}, `Round ${this.round.round}`),
      this.round.attempt > 1 && `, attempt ${this.round.attempt}`, ` · ${count(reported)} of ${count(wanted, "update")} · open for ${duration(Date.now() / 1000 - this.round.opened)}`),
    h("progress", { max: wanted || 1, value: reported, "aria-label": "Updates" }),
    h("p", { class: "states" }, parts.map(([state, number]) => [badge(STATES[state][0], `${count(number)} ${STATES[state][1]}`), " "])));
  }

  end() { clearInterval(this.clock); }
}

const HINTS = {
  lost: "no heartbeat within the run's timeout, or revoked",
  left: "announced that it stops; it may return",
};

function bar(row) {
  const share = Math.round(100 * row.fraction);
  const text = row.state === "waiting" && !share ? "" : `${share} %`;
  return h("div", { class: `bar ${STATES[row.state][0]}`, role: "meter", "aria-valuenow": share, "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": `${row.device}: ${share} %` },
    h("span", { class: "track" }, h("span", { class: "fill", "--share": `${share}%` })), h("span", { class: "share" }, text));
}
