// Layers of a Plotly figure are SVG elements of one size, one upon the other; together they are the picture.
const SCALE = 3;
const INK = "#1c2430";
const GRID = "#e3e7ee";

function isGrey(colour) {
  const numbers = (colour.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
  return numbers.length === 3 && Math.max(...numbers) - Math.min(...numbers) < 60;
}

// On white whatever the theme: text and lines without a colour of their own become dark, backgrounds white.
function forPrint(layer) {
  for (const text of layer.querySelectorAll("text")) {
    if (!text.style.fill || isGrey(text.style.fill)) text.style.fill = INK;
  }
  for (const path of layer.querySelectorAll("path")) path.style.vectorEffect = "none"; // widths grow with the picture
  for (const line of layer.querySelectorAll(".gridlayer path")) line.style.stroke = GRID;
  for (const area of layer.querySelectorAll(".bg")) area.style.fill = "white";
  for (const extra of layer.querySelectorAll(".hoverlayer, .draglayer")) extra.remove();
}

function picture(plot) {
  const { width, height } = plot.querySelector(".main-svg").getBoundingClientRect();
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
  svg.innerHTML = `<rect width="${width}" height="${height}" fill="white"/>`;
  const corner = plot.getBoundingClientRect();
  for (const canvas of plot.querySelectorAll("canvas")) {
    const box = canvas.getBoundingClientRect();
    const image = document.createElementNS("http://www.w3.org/2000/svg", "image");
    const place = { x: box.left - corner.left, y: box.top - corner.top, width: box.width, height: box.height };
    for (const [name, value] of Object.entries(place)) image.setAttribute(name, value);
    image.setAttribute("href", canvas.toDataURL());
    svg.append(image);
  }
  for (const layer of plot.querySelectorAll(".main-svg")) {
    const copy = layer.cloneNode(true);
    copy.removeAttribute("style");
    forPrint(copy);
    svg.append(copy);
  }
  svg.style.fontFamily = "sans-serif";
  return { svg: new XMLSerializer().serializeToString(svg), width, height };
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function asPng({ svg, width, height }) {
  const image = new Image();
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(svg);
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: width * SCALE, height: height * SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const MAKERS = {
  svg: async (drawn) => new Blob([drawn.svg], { type: "image/svg+xml" }),
  png: asPng,
};

export default function ({ data, parentElement }) {
  for (const button of parentElement.querySelectorAll("button")) {
    button.onclick = async () => {
      const plot = document.querySelector(`.st-key-${data.container} .js-plotly-plot`);
      if (plot) save(await MAKERS[button.dataset.format](picture(plot)), `${data.name}.${button.dataset.format}`);
    };
  }
}
