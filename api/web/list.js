// The studies.

import * as api from "./api.js";
import { make, table } from "./dom.js";
import * as format from "./format.js";
import { follow, oneAtATime } from "./live.js";

const columns = [
  ["study", ({ study }) => make("a", { href: `#/studies/${encodeURIComponent(study.name)}` }, study.name), "text"],
  ["state", ({ study }) => make("span", { class: "state" }, study.state), "text"],
  ["runner", ({ study }) => (study.replayed ? "replay (replayed)" : study.runner), "text"],
  ["trials done", ({ study, done }) => `${done ?? "?"} of ${study.budget_trials}`],
  ["created", ({ study }) => format.moment(study.created_at)],
];

function empty() {
  return make(
    "div", { class: "empty" }, make("p", {}, "No studies yet. Start one with "),
    make("p", {}, make("code", {}, "paretune tune STUDY.yaml"), " or ", make("code", {}, "POST /v1/studies")),
  );
}

// How many trials of a study are done. A study is asked again only when its revision has changed.
function counter() {
  const known = new Map();
  return async (study) => {
    if (known.get(study.id)?.revision !== study.revision) {
      try {
        const { revision, counts } = await api.study(study.id);
        known.set(study.id, { revision, done: format.done(counts) });
      } catch (error) {
        // Deleted since the list was read.
        if (error.status !== 404) throw error;
        known.delete(study.id);
      }
    }
    return { study, done: known.get(study.id)?.done };
  };
}

async function firstPages(pages) {
  const found = [];
  let next = null;
  do {
    const page = await api.studies(next);
    found.push(...page.studies);
    next = page.next;
    pages -= 1;
  } while (next && pages > 0);
  return { found, next };
}

// Shows the list in an element and keeps it up to date. Returns how to stop.
export function showList(view) {
  const holder = make("div");
  const count = counter();
  let pages = 1;
  const refresh = oneAtATime(async () => {
    try {
      const { found, next } = await firstPages(pages);
      const rows = await Promise.all(found.map(count));
      holder.replaceChildren(rows.length ? table("newest first", columns, rows) : empty());
      older.hidden = !next;
    } catch (error) {
      const text = error instanceof api.Problem ? error.message : "the service does not answer";
      holder.replaceChildren(make("p", { class: "error", role: "alert" }, text));
    }
  });
  const older = make("button", { type: "button", hidden: "", onclick: () => {
    pages += 1;
    refresh();
  } }, "older studies");
  view.replaceChildren(make("h1", {}, "Studies"), holder, make("p", {}, older));
  refresh();
  return follow(api.eventsPath(null), refresh);
}
