// Following events. The browser reconnects by itself with the last event's id; we only say when the line is down.

const QUIET_MS = 400;
const KINDS = [
  "study.created", "study.deleted", "study.queued", "study.running", "study.paused", "study.stopping",
  "study.cancelling", "study.completed", "study.stopped", "study.cancelled", "study.failed", "study.waiting",
  "trial.queued", "trial.running", "trial.complete", "trial.infeasible", "trial.failed", "trial.stopped",
  "trial.lost", "trial.requeued",
];

// Calls changed() soon after any event, at most once every QUIET_MS, and after each reconnection. Returns how to stop.
export function follow(path, changed) {
  const connection = document.getElementById("connection");
  let timer = null;
  let lost = false;
  const soon = () => {
    timer ??= setTimeout(() => {
      timer = null;
      changed();
    }, QUIET_MS);
  };
  const say = (state, text) => {
    connection.dataset.state = state;
    connection.textContent = text;
  };
  const source = new EventSource(path);
  for (const kind of KINDS) source.addEventListener(kind, soon);
  source.addEventListener("open", () => {
    say("live", "live");
    if (lost) soon();
    lost = false;
  });
  let retry = null;
  source.addEventListener("error", () => {
    lost = true;
    say("lost", "connection lost, trying again");
    // A stream that was answered with an error is not tried again by the browser: the study may be gone.
    if (source.readyState === EventSource.CLOSED) retry = setTimeout(changed, 2000);
  });
  return () => {
    source.close();
    clearTimeout(timer);
    clearTimeout(retry);
    say("", "");
  };
}
