// One study: its frontier, its recommendations, and how it is steered.

import * as api from "./api.js";
import { frontierChart, hypervolumeChart } from "./charts.js";
import { make, table } from "./dom.js";
import * as format from "./format.js";
import { follow, oneAtATime } from "./live.js";

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
const FASTEST = { title: "fastest", query: { policy: "fastest" } };
const POLICIES = [
  FASTEST,
  { title: "least energy, at most 5 % slower than the baseline", query: { policy: "least_energy", max_slowdown: 0.05 } },
  { title: "least energy", query: { policy: "least_energy" } },
];

const pointColumns = [
  ["trial", (p) => `${p.trial}${p.isBaseline ? " (baseline)" : ""}`],
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
  ["configuration", (t) => format.configuration(t.configuration), "text wrap"],
  ["why", (t) => (t.failure_kind ?? "").replaceAll("_", " "), "text wrap"],
  ["message", (t) => t.message ?? "", "text wrap"],
];

async function recommended(name, policy) {
  try {
    const answer = await api.recommendation(name, policy.query);
    const m = answer.point.measurement;
    const numbers = [`${format.seconds(m.step_time_s)} s`];
    if (m.energy_j !== null) numbers.push(`${format.kilojoules(m.energy_j)} kJ`);
    if (answer.point.slowdown !== null) numbers.push(`time ${format.signed(answer.point.slowdown)}`);
    if (answer.point.energy_saving !== null) numbers.push(`energy ${format.signed(-answer.point.energy_saving)}`);
    const source = m.source === "measured" ? "" : ` (${m.source})`;
    return make(
      "div", { class: "card" }, make("h3", {}, policy.title),
      make("p", {}, format.configuration(answer.point.configuration)),
      make("p", { class: "soft" }, numbers.join(", ") + source),
    );
  } catch (error) {
    if (error.status !== 409) throw error;
    return make("div", { class: "card" }, make("h3", {}, policy.title), make("p", { class: "soft" }, error.message));
  }
}

const sentence = (error) => (error instanceof api.Problem ? error.message : "the service does not answer");

function fact(name, value) {
  return make("span", {}, `${name} `, make("b", {}, value));
}

function head(study, counts, hypervolume) {
  const word = format.provenance(study);
  return [
    make("p", {}, make("span", { class: "state" }, study.state), study.state_reason ? ` ${study.state_reason}` : ""),
    word ? make("p", { class: "notice" }, word) : null,
    make(
      "div", { class: "facts" },
      fact("trials", `${format.done(counts)} of ${study.budget_trials}`), fact("running", String(counts.running)),
      fact("infeasible", String(counts.infeasible)), fact("failed", String(counts.failed + counts.lost)),
      fact("hypervolume", hypervolume.toFixed(4)),
      fact(study.simulated ? "simulated GPU-hours" : study.replayed ? "replayed GPU-hours" : "GPU-hours", counts.gpu_hours.toFixed(2)),
    ),
  ].filter((element) => element !== null);
}

// Changed only with the state: a button that is replaced by each event loses its focus, and the click it is in.
function showActions(actions, state, act) {
  if (actions.dataset.state === state) return;
  const focused = actions.contains(document.activeElement);
  actions.dataset.state = state;
  actions.replaceChildren(...(ACTIONS[state] ?? []).map((action) =>
    make("button", { type: "button", title: HINTS[action], onclick: () => act(action) }, action)
  ));
  // Not to another button: a second press of the same key would do something else.
  if (focused) actions.closest("main").focus({ preventScroll: true });
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
  const unknown = answer.others.filter((point) => point.role === "no_energy");
  if (unknown.length) {
    found.push(make("h2", {}, "Energy unknown"), table("measured, but not on the chart", pointColumns, unknown));
  }
  if (answer.infeasible.length) {
    found.push(make("h2", {}, "Infeasible"), table("what did not fit, or was refused", infeasibleColumns, answer.infeasible));
  }
  return found;
}

const back = () => make("p", {}, make("a", { href: "#/" }, "← all studies"));

// What stays while answers come: returns its parts.
function frame(view, name) {
  const parts = {
    heading: make("h1", {}, name), top: make("div"), actions: make("div", { class: "actions" }),
    problem: make("p", { class: "error", role: "alert" }), title: make("h2"), cards: make("div"), below: make("div"),
    canvas: make("canvas", { role: "img" }),
    small: make("canvas", { role: "img", "aria-label": "Hypervolume after each finished trial" }),
  };
  view.replaceChildren(
    back(), parts.heading, parts.top, parts.actions, parts.problem,
    make(
      "div", { class: "columns" },
      make("section", { class: "filled", "aria-label": "chart" }, parts.title, make("div", { class: "chart" }, parts.canvas)),
      make("section", { "aria-label": "recommendations" }, make("h2", {}, "What to run"), parts.cards, make("h2", {}, "Progress"), make("div", { class: "chart small" }, parts.small)),
    ),
    parts.below,
  );
  return parts;
}

// Shows a study in an element and keeps it up to date. Returns how to stop.
export function showStudy(view, name) {
  const parts = frame(view, name);
  const chart = frontierChart(parts.canvas);
  const progress = hypervolumeChart(parts.small);
  let left = false;
  let unanswered = false;
  const act = async (action) => {
    let said = "";
    try {
      await api.steer(name, action);
    } catch (error) {
      said = sentence(error);
    }
    if (left) return;
    unanswered = false;
    parts.problem.textContent = said;
    refresh();
  };
  const show = (answer, recommendations) => {
    const timed = answer.objectives.length === 1;
    parts.heading.textContent = answer.study.name;
    parts.top.replaceChildren(...head(answer.study, answer.counts, answer.hypervolume));
    showActions(parts.actions, answer.study.state, act);
    parts.title.textContent = timed ? "Step time by trial" : "Time and energy";
    parts.canvas.setAttribute("aria-label", `${parts.title.textContent} of every measured configuration; the table below has the best`);
    chart.show(answer);
    progress.show(answer.hypervolume_history);
    parts.cards.replaceChildren(...recommendations);
    parts.below.replaceChildren(...tables(answer));
    if (unanswered) parts.problem.textContent = "";
    unanswered = false;
  };
  const refresh = oneAtATime(async () => {
    // An answer that comes after the view was left must not touch the next one.
    if (left) return;
    try {
      const answer = await api.frontier(name);
      const policies = answer.objectives.length === 1 ? [FASTEST] : POLICIES;
      const recommendations = await Promise.all(policies.map((policy) => recommended(name, policy)));
      if (!left) show(answer, recommendations);
    } catch (error) {
      if (!left) failed(error);
    }
  });
  const failed = (error) => {
    unanswered = true;
    parts.problem.textContent = sentence(error);
    if (error.status !== 404) return;
    stop();
    const text = `${error.message}; it may have been deleted.`;
    view.replaceChildren(back(), make("h1", {}, name), make("p", { class: "error", role: "alert" }, text));
  };
  refresh();
  const unfollow = follow(api.eventsPath(name), refresh);
  const stop = () => {
    if (left) return;
    left = true;
    unfollow();
    chart.close();
    progress.close();
  };
  return stop;
}
