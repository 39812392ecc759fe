// Loads a script of Streamlit's once the hand has rested: running it holds the page up for a moment.

const REST = 1500; // milliseconds without any sign of a person

export default function ({ data: [path] }) {
  if (globalThis.dpvizAhead) return;
  globalThis.dpvizAhead = true;
  const signs = ["pointermove", "pointerdown", "keydown", "wheel"];
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(load, REST);
  };
  const load = () => {
    for (const sign of signs) removeEventListener(sign, wait, true);
    import(new URL(path, document.baseURI).href).catch(() => {}); // the first figure will ask again, and say what is wrong
  };
  for (const sign of signs) addEventListener(sign, wait, { capture: true, passive: true });
  wait();
}
