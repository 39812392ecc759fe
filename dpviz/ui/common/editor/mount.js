// Streamlit calls this on mount and again whenever the data changes, and runs a call's clean-up late when a newer call
// overtook it: only the clean-up of the latest call means that the editor is gone.
export default function ({ data: [data], parentElement, setStateValue }) {
  let editor = parentElement.scheduleEditor;
  if (!editor?.svg.isConnected) {
    editor?.destroy();
    editor = parentElement.scheduleEditor = new Editor(parentElement);
  }
  editor.update(data, (drawing) => setStateValue("draw", drawing));
  const call = (editor.calls = (editor.calls ?? 0) + 1);
  return () => {
    if (editor.calls !== call) return;
    editor.destroy();
    if (parentElement.scheduleEditor === editor) delete parentElement.scheduleEditor;
  };
}
