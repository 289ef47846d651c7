// Numbers and configurations as a person reads them.

export const clock = (mhz) => (mhz === null ? "default clock" : `${mhz} MHz`);

export const configuration = (c) => `dp ${c.dp}, tp ${c.tp}, pp ${c.pp}, microbatch ${c.microbatch}, ${clock(c.frequency_mhz)}`;

// Four significant figures, never in powers of ten.
const figures = (value) => value.toFixed(value === 0 ? 3 : Math.min(Math.max(3 - Math.floor(Math.log10(Math.abs(value))), 0), 9));

export const seconds = figures;

export const kilojoules = (value) => (value === null ? "unknown" : figures(value / 1e3));

export const signed = (share) => {
  if (share === null) return "";
  const text = (share * 100).toFixed(1);
  return `${Number(text) < 0 ? "−" : "+"}${text.replace("-", "")}\u00a0%`;
};

export const kilowatts = (value) => (value === null ? "" : figures(value / 1e3));

export const moment = (iso) => new Date(iso).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

export const done = (counts) => counts.complete + counts.infeasible + counts.failed + counts.stopped + counts.lost;

export const provenance = (study) => {
  if (study.simulated) return "Simulated: no GPU was measured.";
  if (study.replayed) return "Replayed from a measured table.";
  return "";
};
