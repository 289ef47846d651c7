// The service, as the page uses it. A problem becomes an Error whose message is the problem's sentence.

export class Problem extends Error {
  constructor(problem) {
    super(problem.detail);
    this.status = problem.status;
  }
}

async function request(path, options) {
  const response = await fetch(path, options);
  if (response.ok) return response.json();
  let problem = { detail: `the service answered ${response.status}`, status: response.status };
  try {
    problem = await response.json();
  } catch {
    // Not from the service itself, such as a proxy in between: the status has to do.
  }
  throw new Problem(problem);
}

const at = (study, rest = "") => `/v1/studies/${encodeURIComponent(study)}${rest}`;

const PAGE = 50;
export const studies = (cursor) =>
  request(`/v1/studies?${new URLSearchParams(cursor ? { limit: PAGE, cursor } : { limit: PAGE })}`);
export const study = (name) => request(at(name));
export const frontier = (name) => request(at(name, "/frontier"));
export const steer = (name, action) => request(at(name, `/${action}`), { method: "POST" });
export const recommendation = (name, policy) => request(at(name, `/recommendation?${new URLSearchParams(policy)}`));
export const eventsPath = (name) => (name === null ? "/v1/events" : at(name, "/events"));
