// The address always holds the board, so that a reload and a copied address keep it.

const REMEMBERED = "dpviz.schedule"; // in the storage of the browser's tab, for the way back from a page that was reloaded
let shownLink; // undefined until the first editor of this page

/** Shows the board's link; what the tab remembers is to be opened if a page without a link begins. */
function keepAddress(link) {
  if (link === null) return {}; // a drawing that has no address
  const remembered = shownLink === undefined && !link && sessionStorage.getItem(REMEMBERED);
  shownLink = link;
  if (remembered) return { open: remembered };
  const others = new URLSearchParams(location.search);
  others.delete("s");
  const query = [others.toString(), link && `s=${link}`].filter(Boolean).join("&");
  const address = location.pathname + (query && `?${query}`);
  if (address === location.pathname + location.search) return {};
  history.replaceState(history.state, "", address); // not pushed: a stroke is no step of the Back button
  sessionStorage.setItem(REMEMBERED, link);
  return {};
}
