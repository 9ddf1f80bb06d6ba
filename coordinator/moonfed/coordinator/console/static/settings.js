// A run's settings: pairs of a name and a text.

import { labelText } from "./fleet.js";
import { percent } from "./format.js";

export function settingFacts({ asynchronous, robust, ...settings }) {
  return [
    ["cohort", settings.cohort],
    ["quorum", settings.quorum],
    ["minimum devices", settings.minimum_devices],
    ["deadline", `${settings.deadline_seconds} s`],
    ["heartbeat timeout", `${settings.heartbeat_timeout_seconds} s`],
    ["sampling", settings.sampling],
    ["over-selection", percent(settings.over_selection)],
    ["downlink", settings.downlink_encoding || "float32"],
    ["uplink", settings.uplink_encoding || "float32"],
    ["seed", settings.seed],
    ["labels", labelText(settings.labels)],
    ["buffer", asynchronous?.buffer],
    ["maximum staleness", asynchronous?.max_staleness],
    ["reducer", robust && (robust.reducer || "mean")],
    ["weight cap", robust?.weight_cap ? `${robust.weight_cap}/N` : null],
    ["clip norm", robust?.clip_norm || null],
    ["clip factor", robust?.clip_factor || null],
    ["exclude after", settings.exclude_after || null],
  ];
}
