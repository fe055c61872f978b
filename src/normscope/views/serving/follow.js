"use strict";
// A served page asks every few seconds whether its run has changed, and takes over what is new.
(() => {
  const EVERY = 2000; // milliseconds
  const said = document.querySelector("#live span");
  let stamp = servedStamp;

  const at = () => new Date().toLocaleTimeString();
  async function ask() {
    const answer = await fetch(`now?stamp=${encodeURIComponent(stamp)}`);
    if (answer.status === 204) return said.dataset.since ? `Live; last change at ${said.dataset.since}.` : "Live.";
    if (!answer.ok) return `At ${at()} the server said: ${(await answer.text()).trim()}`;
    const fresh = await answer.json();
    stamp = fresh.stamp;
    await renewPage(fresh);
    said.dataset.since = at();
    return `Live; last change at ${said.dataset.since}.`;
  }
  async function follow() {
    for (;;) {
      if (!document.hidden) {
        try {
          said.textContent = await ask();
        } catch (error) {
          said.textContent = "The server does not answer: normscope serve has stopped, or the connection is lost. The page shows what was known last.";
        }
      }
      await new Promise((done) => setTimeout(done, EVERY));
    }
  }
  follow();
})();
