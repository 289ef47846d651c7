// The charts. Roles differ in colour (Okabe and Ito, for the colour-blind) and in marker.

import * as format from "./format.js";

const ROLES = {
  dominated: { label: "dominated", color: "#999999", pointStyle: "circle", radius: 3.5, alpha: "88" },
  tied: { label: "tied with the frontier", color: "#56B4E9", pointStyle: "rect", radius: 5, alpha: "aa" },
  beyond_limits: { label: "beyond the limits", color: "#D55E00", pointStyle: "crossRot", radius: 5, alpha: "cc" },
};
const Z_95 = 1.96;

const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
const grid = () => getComputedStyle(document.documentElement).getPropertyValue("--line").trim();

function axis(text) {
  return {
    title: { display: true, text, color: ink() },
    ticks: { color: ink() },
    grid: { color: grid() },
    border: { color: grid() },
    grace: "5%",
  };
}

function numbered(text) {
  const plain = axis(text);
  return { ...plain, ticks: { ...plain.ticks, precision: 0, maxRotation: 0, autoSkipPadding: 16 } };
}

function described(point) {
  const m = point.measurement;
  const lines = [format.configuration(point.configuration), `${format.seconds(m.step_time_s)} s per step`];
  if (m.energy_j !== null) lines.push(`${format.kilojoules(m.energy_j)} kJ per step`);
  lines.push(`${Math.round(m.tokens_per_s).toLocaleString("en")} tokens/s`);
  if (m.average_power_w !== null) lines.push(`${format.kilowatts(m.average_power_w)} kW on average`);
  if (point.slowdown !== null) lines.push(`time ${format.signed(point.slowdown)} against the baseline`);
  if (point.energy_saving !== null) lines.push(`energy ${format.signed(-point.energy_saving)} against the baseline`);
  if (m.source !== "measured") lines.push(m.source);
  if (m.flags.length) lines.push(m.flags.join(", "));
  return lines;
}

// Draws again in the other scheme's ink when the system changes it. Returns how to stop.
function onSchemeChange(draw) {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  return () => scheme.removeEventListener("change", draw);
}

// The baseline is drawn once more as one of the frontier or the others: one point is described once.
const once = (item, index, items) => items.findIndex((other) => other.raw.point.trial === item.raw.point.trial) === index;

// Standard errors as thin crosses of 1.96 times their length to each side.
const errorBars = {
  id: "errorBars",
  beforeDatasetsDraw(chart) {
    const { ctx, scales } = chart;
    ctx.save();
    ctx.strokeStyle = ink();
    ctx.globalAlpha = 0.55;
    for (const dataset of chart.data.datasets) {
      for (const { x, y, point } of dataset.data) {
        if (!dataset.withErrors) continue;
        const dx = Z_95 * point.measurement.step_time_sem_s;
        const dy = (Z_95 * (point.measurement.energy_sem_j ?? 0)) / 1e3;
        ctx.beginPath();
        ctx.moveTo(scales.x.getPixelForValue(x - dx), scales.y.getPixelForValue(y));
        ctx.lineTo(scales.x.getPixelForValue(x + dx), scales.y.getPixelForValue(y));
        ctx.moveTo(scales.x.getPixelForValue(x), scales.y.getPixelForValue(y - dy));
        ctx.lineTo(scales.x.getPixelForValue(x), scales.y.getPixelForValue(y + dy));
        ctx.stroke();
      }
    }
    ctx.restore();
  },
};

function datasets(answer, place) {
  // A missing energy has no place on an axis of energies; as null it would be drawn at 0.
  const placed = (point) => answer.objectives.length === 1 || point.measurement.energy_j !== null;
  const of = (points) => points.filter(placed).map((point) => ({ ...place(point), point }));
  const frontier = {
    label: "frontier", data: of(answer.frontier), withErrors: true, showLine: answer.objectives.length > 1,
    borderColor: "#0072B2", backgroundColor: "#0072B2", borderWidth: 2, pointRadius: 5, pointHoverRadius: 7,
  };
  const baseline = {
    label: "baseline", data: answer.baseline ? of([answer.baseline]) : [], withErrors: true,
    backgroundColor: "#E69F00", borderColor: "#E69F00", pointStyle: "star", borderWidth: 2, pointRadius: 9, pointHoverRadius: 11,
  };
  const others = Object.entries(ROLES).map(([role, style]) => ({
    label: style.label, data: of(answer.others.filter((point) => point.role === role)),
    backgroundColor: style.color + style.alpha, borderColor: style.color + style.alpha,
    pointStyle: style.pointStyle, pointRadius: style.radius, pointHoverRadius: style.radius + 2,
  }));
  return [frontier, baseline, ...others].filter((dataset) => dataset.data.length);
}

export function frontierChart(canvas) {
  const chart = new Chart(canvas, {
    type: "scatter",
    data: { datasets: [] },
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: { mode: "nearest", intersect: true },
      plugins: {
        legend: { position: "bottom", labels: { color: ink(), usePointStyle: true } },
        tooltip: { filter: once, callbacks: { title: ([item]) => `trial ${item.raw.point.trial}`, label: (item) => described(item.raw.point) } },
      },
    },
    plugins: [errorBars],
  });
  let shown = null;
  const draw = () => shown && show(shown);
  const forget = onSchemeChange(draw);
  function show(answer) {
    shown = answer;
    const timed = answer.objectives.length === 1;
    const place = timed
      ? (point) => ({ x: point.trial, y: point.measurement.step_time_s })
      : (point) => ({ x: point.measurement.step_time_s, y: point.measurement.energy_j / 1e3 });
    chart.data.datasets = datasets(answer, place);
    for (const dataset of timed ? chart.data.datasets : []) dataset.withErrors = false;
    chart.options.scales = timed
      ? { x: numbered("trial"), y: axis("seconds per optimizer step") }
      : { x: axis("seconds per step"), y: axis("kJ per step, all GPUs") };
    chart.options.plugins.legend.labels.color = ink();
    chart.update();
  }
  return {
    show,
    close: () => {
      forget();
      chart.destroy();
    },
  };
}

export function hypervolumeChart(canvas) {
  const chart = new Chart(canvas, {
    type: "line",
    data: { labels: [], datasets: [{ data: [], borderColor: "#0072B2", borderWidth: 2, pointRadius: 0, stepped: true }] },
    options: {
      animation: false,
      maintainAspectRatio: false,
      plugins: { legend: { display: false }, tooltip: { intersect: false, mode: "index" } },
    },
  });
  function show(history) {
    chart.data.labels = history.map((_, index) => index + 1);
    chart.data.datasets[0].data = history;
    chart.options.scales = { x: numbered("finished trials"), y: { ...axis("hypervolume"), beginAtZero: true } };
    chart.update();
  }
  const forget = onSchemeChange(() => show(chart.data.datasets[0].data));
  return {
    show,
    close: () => {
      forget();
      chart.destroy();
    },
  };
}
