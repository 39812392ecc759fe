// Loads `figures`, the script that draws them, ahead of the first figure: running it holds the page up for a moment.
// So it is done when neither the page nor the hand has moved for a while, or while a page that was asked for is awaited.

const REST = 1500; // milliseconds
const SENT = 50; // milliseconds after a click, when the server knows of it

const signs = ["pointermove", "pointerdown", "keydown", "wheel"];
const observer = new MutationObserver(wait);
let timer;

function wait() {
  clearTimeout(timer);
  timer = setTimeout(load, REST);
}

function load() {
  clearTimeout(timer);
  observer.disconnect();
  for (const sign of signs) removeEventListener(sign, wait, true);
  removeEventListener("click", leave, true);
  import(new URL(figures, document.baseURI).href).catch(() => {}); // the first figure will ask again, and say what is wrong
}

function leave(event) {
  if (event.target.closest?.("[data-testid=stTopNavLink]")) setTimeout(load, SENT);
}

for (const sign of signs) addEventListener(sign, wait, { capture: true, passive: true });
addEventListener("click", leave, true);
observer.observe(document, { childList: true, subtree: true });
