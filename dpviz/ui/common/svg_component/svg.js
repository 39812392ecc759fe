// What every component that draws as SVG needs.

const SVG = "http://www.w3.org/2000/svg";

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

function append(parent, tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  setAll(node, attributes);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function setAll(node, attributes) {
  for (const name in attributes) node.setAttribute(name, attributes[name]);
}

/**
 * Keeps one `Drawing` under this name in its place on the page, updates it, and gives its clean-up.
 *
 * Streamlit calls on mount and again whenever the data change, and runs a call's clean-up late when a newer call
 * overtook it: only the clean-up of the latest call means that the drawing is gone.
 */
function show(place, name, Drawing, update) {
  let drawing = place[name];
  if (!drawing?.svg.isConnected) {
    drawing?.destroy();
    drawing = place[name] = new Drawing(place);
  }
  update(drawing);
  const call = (drawing.calls = (drawing.calls ?? 0) + 1);
  return () => {
    if (drawing.calls !== call) return;
    drawing.destroy();
    if (place[name] === drawing) delete place[name];
  };
}
