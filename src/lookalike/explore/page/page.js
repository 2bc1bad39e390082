// Shows what the server answers. Text from the data only ever becomes a text node, never markup.
"use strict";

const PAGE = 40;
const main = document.getElementById("main");
const query = document.getElementById("query");
const help = document.getElementById("help");
let about = null;
let view = { name: "", items: [], anchor: null };
let filter = { low: 0, high: null };
let undoable = []; // marks of this page, the last one last
let loading = 0; // the number of the newest request: answers to older ones are dropped
let timer = 0;
let deciding = Promise.resolve();

function make(tag, properties = {}, ...children) {
  const { dataset, ...others } = properties;
  const element = Object.assign(document.createElement(tag), others);
  Object.assign(element.dataset, dataset || {});
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

async function ask(path, options) {
  const answer = await fetch(path, options).catch(() => {
    throw new Error("The server does not answer: start lookalike explore again.");
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.error || `the server answered with ${answer.status}.`);
  return content;
}

function say(text, undo = false) {
  const status = document.getElementById("status");
  clearTimeout(say.timer);
  status.replaceChildren(text);
  if (undo) status.append(make("button", { type: "button", textContent: "Undo", onclick: undoLast }));
  if (text) say.timer = setTimeout(() => status.replaceChildren(), 8000);
}

// A sample: its id and label, and its text or picture in each tower; the searched tower comes first in lists.
function side(sample, { towers = Object.keys(about.kinds).reverse(), open = true } = {}) {
  const id = make(open ? "a" : "b", { textContent: `#${sample.id}` });
  if (open) Object.assign(id, { href: `#sample/${sample.id}`, tabIndex: -1 });
  const label = sample.label === null ? null : make("span", { className: "label", textContent: `label ${sample.label}` });
  const element = make("div", { className: "side" });
  towers.forEach((tower, i) => {
    const kind = about.kinds[tower];
    if (kind === "text") {
      element.append(make("p", { className: i ? "text second" : "text", textContent: sample.views[tower], title: tower === "sample" ? "" : tower }));
    } else if (kind !== "nothing") {
      element.classList.add("pictured");
      const alt = tower === "sample" ? `sample ${sample.id}` : `${tower} ${sample.id}`;
      element.append(make("img", { src: `image/${tower}/${sample.id}`, alt, loading: "lazy", className: kind }));
    }
  });
  element.append(make("div", { className: "meta" }, id, label));
  return element;
}

const cosine = (value) => `cosine ${value.toFixed(2)}`.replace("-", "\u2212");

function sameButton(first, second) {
  return make("button", {
    type: "button", className: "same", textContent: "Same", tabIndex: -1, onclick: () => mark(first, second),
  });
}

function pairItem(pair, index) {
  const why = make("div", { className: "why" });
  if (pair.distance !== undefined) {
    why.append(make("b", { textContent: `${pair.distance} bits apart` }), make("span", { textContent: cosine(pair.cosine) }));
    if (pair.positive_distances) why.append(make("span", { textContent: `own positives at ${pair.positive_distances.join(", ")}` }));
    why.append(sameButton(pair.first.id, pair.second.id));
  } else {
    why.append(make("button", {
      type: "button", textContent: "Not the same", tabIndex: -1, onclick: () => unmark(pair.first.id, pair.second.id),
    }));
  }
  const forward = { towers: Object.keys(about.kinds) }; // the first one's query is near the second one's reference
  const item = make("li", { className: "item pair", dataset: { index } }, side(pair.first, forward), side(pair.second), why);
  return { item, first: pair.first.id, second: pair.second.id, open: pair.first.id };
}

function neighbourItem(neighbour, anchor, index, canMark) {
  const item = make("li", { className: "item", dataset: { index } }, side(neighbour));
  item.querySelector(".meta").append(
    make("span", { textContent: `${neighbour.distance} bits` }), make("span", { textContent: cosine(neighbour.cosine) }));
  if (neighbour.marked) item.append(make("span", { className: "tag", textContent: "marked as the same" }));
  else if (canMark) item.append(sameButton(anchor, neighbour.id));
  return { item, first: anchor, second: canMark && !neighbour.marked ? neighbour.id : null, open: neighbour.id };
}

function list(entries, className, label) {
  const element = make("ol", { className }, ...entries.map((entry) => entry.item));
  element.setAttribute("aria-label", label);
  for (const entry of entries) {
    entry.item.tabIndex = -1;
    entry.item.addEventListener("focus", () => select(view.items.indexOf(entry), false));
    view.items.push(entry);
  }
  return element;
}

function layout() {
  return Object.values(about.kinds).some((kind) => kind === "image" || kind === "ink") ? "grid" : "lines";
}

const pairs = () => (layout() === "grid" ? "pairs pictured" : "pairs");

function select(index, focus = true) {
  if (!view.items.length) return;
  index = Math.max(0, Math.min(index, view.items.length - 1));
  view.items.forEach((entry, i) => { entry.item.tabIndex = i === index ? 0 : -1; });
  view.selected = index;
  if (focus) {
    view.items[index].item.focus({ preventScroll: true });
    view.items[index].item.scrollIntoView({ block: "nearest" });
  }
}

function show(name, selected, ...children) {
  const had = main.contains(document.activeElement);
  main.replaceChildren(...children);
  view.name = name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  select(selected, had || document.activeElement === document.body);
}

// Links to the pages of a list before and after this one, which `p` and `n` follow.
function turn(name, start, shown, total) {
  const link = (rel, textContent, to) => make("a", { rel, textContent, href: `#${name}/${to}` });
  return make("p", { className: "turn" },
    start > 0 ? link("prev", "Previous", Math.max(0, start - PAGE)) : null,
    start + shown < total ? link("next", `Next ${Math.min(PAGE, total - start - shown)}`, start + shown) : null);
}

// Marks made a list so short that this page of it is empty: show the last one that is not.
function turnedBack(name, start, content) {
  const isBeyond = start > 0 && !content.pairs.length;
  if (isBeyond) location.replace(`#${name}/${PAGE * Math.max(0, Math.ceil(content.total / PAGE) - 1)}`);
  return isBeyond;
}

function showSuspects(content, selected, start) {
  view = { items: [] };
  if (content.total === null) {
    const bar = make("progress", { max: 1, value: content.progress });
    bar.setAttribute("aria-label", "progress");
    const note = content.problem || "Comparing every sample with all others. Search and samples work meanwhile.";
    show("suspects", 0, make("p", { className: "empty" }, note, content.problem ? null : bar));
    if (!content.problem) timer = setTimeout(route, 1000);
    return;
  }
  const intro = about.paired
    ? "Queries that lie nearer to another pair's reference than the two pairs lie to their own on average, the most suspicious first."
    : about.labels === null
    ? "The nearest pairs of the whole set, nearest first: without labels there is no positive to compare with."
    : "Pairs of different labels that lie nearer to each other than to their own positives on average, the most suspicious first.";
  if (turnedBack("suspects", start, content)) return;
  const entries = content.pairs.map(pairItem);
  const all = content.total.toLocaleString("en");
  const first = start ? ` Pairs ${start + 1} to ${start + entries.length} of ${all}.` : ` The first ${entries.length} of ${all}.`;
  const count = content.total > entries.length ? first : "";
  show("suspects", selected, make("p", { className: "intro", textContent: intro + count }),
    entries.length ? list(entries, pairs(), "Likely false negatives") : make("p", { className: "empty", textContent: "There is no such pair." }),
    turn("suspects", start, entries.length, content.total));
}

function showSample(content, selected) {
  view = { items: [], anchor: content.sample.id };
  const id = content.sample.id, shape = layout();
  const forward = Object.keys(about.kinds);
  const anchor = make("div", { className: "anchor" }, make("h2", { textContent: "Sample" }), side(content.sample, { towers: forward, open: false }));
  const negatives = content.negatives.map((each, i) => neighbourItem(each, id, i, true));
  const positives = content.positives.filter((each) => each.id !== id).map((each, i) => neighbourItem(each, id, i, false));
  const numPositives = content.num_positives - (about.paired ? 1 : 0); // a pair is a positive of itself
  const mates = content.mates.map((each, i) => neighbourItem(each, id, i, true));
  const part = (title, note, entries, empty, more) => make("section", {}, make("h2", { textContent: title }),
    note ? make("p", { className: "fine", textContent: note }) : null, more,
    entries.length ? list(entries, shape, title) : make("p", { className: "empty", textContent: empty }));
  const shown = (some, all) => (all > some ? `The first ${some} of ${all.toLocaleString("en")}.` : "");
  const sections = [
    part("Hardest negatives", shown(negatives.length, content.total) + " Other labels, nearest first.", negatives, "No sample of another label lies within these limits.", filters(id)),
    part("Positives", shown(positives.length, numPositives) + " The same label, farthest first.", positives, "This sample has no other sample of its label."),
  ];
  if (about.has_mates) sections.push(part("Batch mates", mates.length ? content.mates_note : "", mates, content.mates_note));
  show("sample", selected, make("div", { className: "sample" }, anchor, make("div", {}, ...sections)));
}

function filters(id) {
  const slider = (name, text, value) => {
    const output = make("output");
    const tell = (bits) => { output.textContent = `${bits} bits, ${cosine(Math.cos((Math.PI * bits) / about.bits))}`; };
    const input = make("input", { type: "range", id: name, min: 0, max: about.bits, value });
    tell(value);
    input.addEventListener("input", () => tell(input.valueAsNumber));
    input.addEventListener("change", () => {
      filter[name] = input.valueAsNumber;
      loadSample(id, 0).then(() => document.getElementById(name)?.focus());
    });
    return make("label", {}, text, input, output);
  };
  return make("div", { className: "filter" }, slider("low", "from", filter.low), slider("high", "to", filter.high ?? about.bits));
}

function showSearch(content, text) {
  view = { items: [] };
  const entries = content.samples.map((sample, index) => ({
    item: make("li", { className: "item", dataset: { index } }, side(sample)), first: null, second: null, open: sample.id,
  }));
  const note = content.samples.length === PAGE ? `The first ${PAGE} samples for “${text}”.` : `${entries.length === 1 ? "1 sample" : `${entries.length} samples`} for “${text}”.`;
  show("search", 0, make("p", { className: "intro", textContent: note }),
    entries.length ? list(entries, layout(), "Samples found") : make("p", { className: "empty", textContent: "Nothing found: try a part of a text, an id such as 12, or label:7." }));
}

function showMarked(content, selected, start) {
  view = { items: [] };
  if (turnedBack("marked", start, content)) return;
  const entries = content.pairs.map(pairItem);
  const part = content.total > entries.length ? ` Pairs ${start + 1} to ${start + entries.length} of ${content.total.toLocaleString("en")}.` : "";
  const count = `Marked as the same, the newest first.${part}`;
  show("marked", selected, make("p", { className: "intro", textContent: count }),
    entries.length ? list(entries, pairs(), "Marked pairs") : make("p", { className: "empty", textContent: "Nothing is marked yet." }),
    turn("marked", start, entries.length, content.total));
}

async function load(path, showIt) {
  const number = ++loading;
  clearTimeout(timer);
  try {
    const content = await ask(path);
    if (number === loading) showIt(content);
  } catch (error) {
    if (number === loading) { say(error.message); if (!main.hasChildNodes()) show("", 0, make("p", { className: "empty", textContent: error.message })); }
  }
}

function loadSample(id, selected) {
  const high = filter.high === null || filter.high >= about.bits ? "" : `&max=${filter.high}`;
  return load(`api/sample/${encodeURIComponent(id)}?k=${PAGE}&min=${filter.low}${high}`, (content) => showSample(content, selected));
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; } // typed by hand
}

function route(selected = 0) {
  if (typeof selected !== "number") selected = 0;
  const [name, ...rest] = location.hash.slice(1).split("/");
  const text = decoded(rest.join("/"));
  if (name === "sample") return loadSample(text, selected);
  if (name === "search") { query.value = text; return load(`api/search?k=${PAGE}&q=${encodeURIComponent(text)}`, (content) => showSearch(content, text)); }
  const start = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (name === "marked") return load(`api/marks?k=${PAGE}&start=${start}`, (content) => showMarked(content, selected, start));
  return load(`api/suspects?k=${PAGE}&start=${start}`, (content) => showSuspects(content, selected, start));
}

// Decisions are taken one after the other, each on the list that the one before has left.
function queued(decision) {
  deciding = deciding.then(decision).catch((error) => say(error.message));
}

async function decide(first, second, same) {
  const body = JSON.stringify({ first, second, same });
  const selected = view.selected || 0;
  const answer = await ask("api/mark", { method: "POST", headers: { "content-type": "application/json" }, body });
  undoable = undoable.filter(([a, b]) => a !== first || b !== second);
  if (same) undoable.push([first, second]);
  document.getElementById("marks").textContent = answer.marks.toLocaleString("en");
  say(same ? `Marked #${first} and #${second} as the same.` : `#${first} and #${second} are not marked any more.`, same);
  await route(selected);
}

const mark = (first, second) => queued(() => decide(first, second, true));
const unmark = (first, second) => queued(() => decide(first, second, false));

function markSelected() {
  queued(() => {
    const current = view.items[view.selected || 0];
    if (current && current.second !== null && view.name !== "marked") return decide(current.first, current.second, true);
    return say("There is no pair to mark here: choose a negative.");
  });
}

function undoLast() {
  queued(() => (undoable.length ? decide(...undoable[undoable.length - 1], false) : say("There is nothing to undo.")));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const typing = event.target.matches("input, textarea, select");
  if (typing && event.key === "Escape") { event.target.blur(); select(view.selected || 0); return; }
  if (typing) return;
  const current = view.items[view.selected || 0];
  const next = { j: 1, ArrowDown: 1, ArrowRight: 1, k: -1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  if (next) select((view.selected || 0) + (main.contains(document.activeElement) ? next : 0));
  else if (event.key === "s") markSelected();
  else if (event.key === "u") undoLast();
  else if (event.key === "Enter" && current && event.target === current.item) location.hash = `#sample/${current.open}`;
  else if (event.key === "n" || event.key === "p") main.querySelector(`.turn [rel=${event.key === "n" ? "next" : "prev"}]`)?.click();
  else if (event.key === "f") location.hash = "#suspects";
  else if (event.key === "m") location.hash = "#marked";
  else if (event.key === "/") query.focus();
  else if (event.key === "?") help.showModal();
  else return;
  event.preventDefault();
}

async function start() {
  about = await ask("api/about");
  document.title = `${about.title} · lookalike explore`;
  document.getElementById("title").textContent = about.title;
  const labels = about.labels === null ? "no labels" : `${about.labels.toLocaleString("en")} labels`;
  const facts = [`${about.samples.toLocaleString("en")} samples`, labels, `${about.bits} bits`, ...about.details];
  document.getElementById("details").textContent = facts.join(" · ");
  document.getElementById("marks").textContent = about.marks.toLocaleString("en");
  document.getElementById("marks-path").textContent = about.marks_path;
  document.getElementById("use").textContent = about.use;
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    if (query.value.trim()) { query.blur(); location.hash = `#search/${encodeURIComponent(query.value.trim())}`; }
  });
  document.getElementById("help-button").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => route());
  await route();
}

start().catch((error) => { main.replaceChildren(make("p", { className: "empty", textContent: error.message })); });
