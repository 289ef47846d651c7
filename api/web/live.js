// Following events. The browser reconnects by itself with the last event's id; we only say when the line is down.

const QUIET_MS = 400;
const REOPEN_MS = 2000;
const KINDS = [
  "study.created", "study.deleted", "study.queued", "study.running", "study.paused", "study.stopping",
  "study.cancelling", "study.completed", "study.stopped", "study.cancelled", "study.failed", "study.waiting",
  "trial.queued", "trial.running", "trial.complete", "trial.infeasible", "trial.failed", "trial.stopped",
  "trial.lost", "trial.requeued",
];

// Runs work one at a time; what is asked for meanwhile is done once more afterwards.
export function oneAtATime(work) {
  let busy = false;
  let again = false;
  return async () => {
    again = busy;
    if (busy) return;
    busy = true;
    do {
      again = false;
      await work();
    } while (again);
    busy = false;
  };
}

// Calls changed() soon after any event, at most once every QUIET_MS, and after each opening: what happened before the
// stream was open is not in it. Returns how to stop.
export function follow(path, changed) {
  const connection = document.getElementById("connection");
  let source = null;
  let timer = null;
  let retry = null;
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
  const open = () => {
    source = new EventSource(path);
    for (const kind of KINDS) source.addEventListener(kind, soon);
    source.addEventListener("open", () => {
      say("live", "live");
      soon();
    });
    source.addEventListener("error", () => {
      say("lost", "connection lost, trying again");
      // The browser gives up where the answer is an error: the database may be away, or the study gone.
      if (source.readyState === EventSource.CLOSED) {
        retry = setTimeout(() => {
          changed();
          open();
        }, REOPEN_MS);
      }
    });
  };
  open();
  return () => {
    source.close();
    clearTimeout(timer);
    clearTimeout(retry);
    say("", "");
  };
}
