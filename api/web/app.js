// Which view the address asks for.

import { showList } from "./list.js";
import { showStudy } from "./study.js";

const view = document.getElementById("view");
let leave = () => {};

// An address typed by hand may hold a lone "%"; as it stands, the service will say that there is no such study.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  leave();
  const study = location.hash.match(/^#\/studies\/([^/]+)$/);
  const name = study ? decoded(study[1]) : null;
  document.title = name === null ? "Paretune" : `${name} · Paretune`;
  leave = name === null ? showList(view) : showStudy(view, name);
  view.focus({ preventScroll: true });
}

addEventListener("hashchange", route);
// Chart.js is a deferred script before this module, so it is there.
route();
