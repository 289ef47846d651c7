// One study: its frontier, its recommendations, and how it is steered.

import * as api from "./api.js";
import { frontierChart, hypervolumeChart } from "./charts.js";
import { make, table } from "./dom.js";
import * as format from "./format.js";
import { follow } from "./live.js";

const ACTIONS = {
  queued: ["pause", "stop", "cancel"],
  running: ["pause", "stop", "cancel"],
  paused: ["resume", "stop", "cancel"],
  stopping: ["cancel"],
};
const HINTS = {
  pause: "running trials end, GPUs are freed",
  resume: "go on",
  stop: "running trials end, then the study",
  cancel: "running trials are killed",
};
const POLICIES = [
  { policy: "fastest" },
  { policy: "least_energy", max_slowdown: 0.05 },
  { policy: "least_energy" },
];

const pointColumns = [
  ["trial", (p) => String(p.trial)],
  ["dp", (p) => String(p.configuration.dp)],
  ["tp", (p) => String(p.configuration.tp)],
  ["pp", (p) => String(p.configuration.pp)],
  ["microbatch", (p) => String(p.configuration.microbatch)],
  ["clock", (p) => (p.configuration.frequency_mhz === null ? "default" : `${p.configuration.frequency_mhz} MHz`)],
  ["s / step", (p) => format.seconds(p.measurement.step_time_s)],
  ["time", (p) => format.signed(p.slowdown)],
  ["GiB", (p) => (p.measurement.peak_memory_gib === null ? "" : p.measurement.peak_memory_gib.toFixed(1))],
];
const energyColumns = [
  ["kJ / step", (p) => format.kilojoules(p.measurement.energy_j)],
  ["energy", (p) => (p.energy_saving === null ? "" : format.signed(-p.energy_saving))],
  ["kW", (p) => format.kilowatts(p.measurement.average_power_w)],
];
const infeasibleColumns = [
  ["trial", (t) => String(t.number)],
  ["configuration", (t) => format.configuration(t.configuration), "text"],
  ["why", (t) => (t.failure_kind ?? "").replaceAll("_", " "), "text"],
  ["message", (t) => t.message ?? "", "text wrap"],
];

async function recommended(name, policy) {
  try {
    const answer = await api.recommendation(name, policy);
    const m = answer.point.measurement;
    const numbers = [`${format.seconds(m.step_time_s)} s`];
    if (m.energy_j !== null) numbers.push(`${format.kilojoules(m.energy_j)} kJ`);
    if (answer.point.slowdown !== null) numbers.push(`time ${format.signed(answer.point.slowdown)}`);
    if (answer.point.energy_saving !== null) numbers.push(`energy ${format.signed(-answer.point.energy_saving)}`);
    const source = m.source === "measured" ? "" : ` (${m.source})`;
    return make(
      "div", { class: "card" }, make("h3", {}, answer.description),
      make("p", {}, format.configuration(answer.point.configuration)),
      make("p", { class: "soft" }, numbers.join(", ") + source),
    );
  } catch (error) {
    if (error.status !== 409) throw error;
    const title = policy.policy.replaceAll("_", " ");
    return make("div", { class: "card" }, make("h3", {}, title), make("p", { class: "soft" }, error.message));
  }
}

function fact(name, value) {
  return make("span", {}, `${name} `, make("b", {}, value));
}

function head(study, counts, hypervolume, act) {
  const done = counts.complete + counts.infeasible + counts.failed + counts.stopped + counts.lost;
  const buttons = (ACTIONS[study.state] ?? []).map((action) =>
    make("button", { type: "button", title: HINTS[action], onclick: () => act(action) }, action)
  );
  const word = format.provenance(study);
  return [
    make("p", {}, make("a", { href: "#/" }, "← all studies")),
    make("h1", {}, study.name),
    make("p", {}, make("span", { class: "state" }, study.state), study.state_reason ? ` ${study.state_reason}` : ""),
    word ? make("p", { class: "notice" }, word) : null,
    make(
      "div", { class: "facts" },
      fact("trials", `${done} of ${study.budget_trials}`), fact("running", String(counts.running)),
      fact("infeasible", String(counts.infeasible)), fact("failed", String(counts.failed + counts.lost)),
      fact("hypervolume", hypervolume.toFixed(4)),
      fact(study.simulated ? "simulated GPU-hours" : study.replayed ? "replayed GPU-hours" : "GPU-hours", counts.gpu_hours.toFixed(2)),
    ),
    buttons.length ? make("div", { class: "actions" }, ...buttons) : null,
  ].filter((element) => element !== null);
}

function tables(answer) {
  const timed = answer.objectives.length === 1;
  const columns = timed ? pointColumns : [...pointColumns.slice(0, 7), energyColumns[0], pointColumns[7], ...energyColumns.slice(1), pointColumns[8]];
  const rows = answer.baseline ? [...answer.frontier, { ...answer.baseline, isBaseline: true }] : answer.frontier;
  const found = [make("h2", {}, timed ? "Fastest configuration" : "Frontier")];
  found.push(
    rows.length
      ? table("fastest first; the baseline last", columns, rows, (row) => (row.isBaseline ? "baseline" : null))
      : make("p", { class: "soft" }, "No trial has finished yet.")
  );
  if (answer.infeasible.length) {
    found.push(make("h2", {}, "Infeasible"), table("what did not fit, or was refused", infeasibleColumns, answer.infeasible));
  }
  return found;
}

// Shows a study in an element and keeps it up to date. Returns how to stop.
export function showStudy(view, name) {
  const top = make("div");
  const problem = make("p", { class: "error", role: "alert" });
  const canvas = make("canvas", { role: "img", "aria-label": "Time and energy of every measured configuration; the table below has the frontier" });
  const small = make("canvas", { role: "img", "aria-label": "Hypervolume after each finished trial" });
  const cards = make("div");
  const below = make("div");
  const body = make(
    "div", {},
    make(
      "div", { class: "columns" },
      make("section", { "aria-label": "frontier" }, make("h2", {}, "Time and energy"), make("div", { class: "chart" }, canvas)),
      make("section", { "aria-label": "recommendations" }, make("h2", {}, "What to run"), cards, make("h2", {}, "Progress"), make("div", { class: "chart small" }, small)),
    ),
    below,
  );
  view.replaceChildren(top, problem, body);
  const chart = frontierChart(canvas);
  const progress = hypervolumeChart(small);
  const act = async (action) => {
    try {
      await api.steer(name, action);
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
    }
    refresh();
  };
  let busy = false;
  let again = false;
  const refresh = async () => {
    // One at a time: what changed meanwhile is fetched once more afterwards.
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const answer = await api.frontier(name);
      const found = await Promise.all(POLICIES.map((policy) => recommended(name, policy)));
      top.replaceChildren(...head(answer.study, answer.counts, answer.hypervolume, act));
      chart.show(answer);
      progress.show(answer.hypervolume_history);
      cards.replaceChildren(...found);
      below.replaceChildren(...tables(answer));
    } catch (error) {
      gone(error);
    }
    busy = false;
    if (again) {
      again = false;
      refresh();
    }
  };
  const gone = (error) => {
    if (error.status === 404) {
      stop();
      view.replaceChildren(
        make("p", {}, make("a", { href: "#/" }, "← all studies")), make("h1", {}, name),
        make("p", { class: "error", role: "alert" }, `${error.message}; it may have been deleted.`),
      );
    } else {
      problem.textContent = error instanceof api.Problem ? error.message : "the service does not answer";
    }
  };
  refresh();
  const unfollow = follow(api.eventsPath(name), refresh);
  const stop = () => {
    unfollow();
    chart.close();
    progress.close();
  };
  return stop;
}
