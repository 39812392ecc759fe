export default function ({ data: [data], parentElement, setStateValue }) {
  const send = (drawing) => setStateValue("draw", drawing);
  return show(parentElement, "scheduleEditor", Editor, (editor) => editor.update(data, send));
}
