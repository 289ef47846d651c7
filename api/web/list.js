// The studies.

import * as api from "./api.js";
import { make, table } from "./dom.js";
import * as format from "./format.js";
import { follow } from "./live.js";

const word = (study) => (study.simulated ? " (simulated)" : study.replayed ? " (replayed)" : "");

const columns = [
  ["study", (s) => make("a", { href: `#/studies/${encodeURIComponent(s.name)}` }, s.name), "text"],
  ["state", (s) => make("span", { class: "state" }, s.state), "text"],
  ["runner", (s) => s.runner + word(s), "text"],
  ["trials at most", (s) => String(s.budget_trials)],
  ["created", (s) => format.moment(s.created_at)],
];

function empty() {
  return make(
    "div", { class: "empty" }, make("p", {}, "No studies yet. Start one with "),
    make("p", {}, make("code", {}, "paretune tune STUDY.yaml"), " or ", make("code", {}, "POST /v1/studies")),
  );
}

// Shows the list in an element and keeps it up to date. Returns how to stop.
export function showList(view) {
  const holder = make("div");
  view.replaceChildren(make("h1", {}, "Studies"), holder);
  const refresh = async () => {
    try {
      const { studies } = await api.studies();
      holder.replaceChildren(studies.length ? table("newest first", columns, studies) : empty());
    } catch (error) {
      holder.replaceChildren(make("p", { class: "error", role: "alert" }, error.message));
    }
  };
  refresh();
  return follow(api.eventsPath(null), refresh);
}
